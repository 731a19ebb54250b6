"""Actor and critic: two perceptrons that share nothing, as in CleanRL's ppo.py and ppo_continuous_action.py."""

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from node.rl.moments import Normaliser

SMALL = 1e-6
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class ActorCritic(nn.Module):
    """A policy and a value function. Methods take observations as `see` returns them.

    Args:
        features: size of an observation.
        actions: number of discrete actions; 0 if actions are continuous.
        action_size: size of a continuous action.
        hidden: units of each of the two hidden layers.
        normalise: whether to normalise observations and rewards by running statistics.
        gsde: whether noise depends on the state (Raffin, Kober and Stulp, 2021, arXiv 2005.05719): it is a matrix
            that maps the output of the actor's last hidden layer, and stays the same for several steps.
        activation: activation of hidden layers: a key of ACTIVATIONS.
        log_std: the initial logarithm of the noise's standard deviation, for continuous actions.

    Attributes:
        noise_size: random numbers needed to draw an action.
    """

    log_std: nn.Parameter | None

    def __init__(
        self,
        features: int,
        actions: int,
        action_size: int,
        hidden: int,
        *,
        normalise: bool,
        gsde: bool = False,
        activation: str = "tanh",
        log_std: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = features, hidden, actions or action_size
        self.actor = perceptron(*sizes, gain=0.01, activation=activation)
        self.critic = perceptron(features, hidden, 1, gain=1.0, activation=activation)
        shape = (hidden, action_size) if gsde else (action_size,)
        self.log_std = None if actions else nn.Parameter(torch.full(shape, log_std))
        self.normaliser = Normaliser(features) if normalise else None
        self.noise_size = actions or math.prod(shape)
        self._gsde = gsde

    def see(self, obs: Tensor) -> Tensor:
        """Convert raw observations, shape (n, features), to what all other methods take."""
        seen: Tensor = self.normaliser.see(obs) if self.normaliser else obs
        return seen

    def scale(self, rewards: Tensor) -> Tensor:
        """Return rewards as they are learnt, shape (n,)."""
        scaled: Tensor = self.normaliser.scale(rewards) if self.normaliser else rewards
        return scaled

    def distribution(self, seen: Tensor) -> Distribution:
        """Return the distribution of actions, for n observations."""
        if self.log_std is None:
            return Categorical(logits=self.actor(seen))
        latent = self.actor[:-1](seen)
        std = self.log_std.exp()
        if self._gsde:  # of the sum in `act`; hidden layers do not learn from the noise
            std = (latent.detach() ** 2 @ std**2 + SMALL).sqrt()
        mean = self.actor[-1](latent)
        return Independent(Normal(mean, std.expand_as(mean)), 1)

    def value(self, seen: Tensor) -> Tensor:
        """Return the expected sum of discounted rewards to come, shape (n,)."""
        values: Tensor = self.critic(seen).squeeze(-1)
        return values

    def act(self, seen: Tensor, noise: Tensor) -> Tensor:
        """Draw actions by noise of shape (n, noise_size): uniform for discrete actions, normal for continuous ones.

        The noise is an argument, so that an environment gets the same on any rank.
        """
        if self.log_std is None:  # the Gumbel-max trick
            outputs: Tensor = self.actor(seen)
            return (outputs - (-noise.clamp(1e-20, 1 - 1e-7).log()).log()).argmax(-1)
        latent = self.actor[:-1](seen)
        scaled = self.log_std.exp() * noise.view(-1, *self.log_std.shape)
        if self._gsde:
            scaled = (latent.unsqueeze(1) @ scaled).squeeze(1)
        actions: Tensor = self.actor[-1](latent) + scaled
        return actions

    def best(self, seen: Tensor) -> Tensor:
        """Return the most likely actions."""
        outputs: Tensor = self.actor(seen)
        return outputs.argmax(-1) if self.log_std is None else outputs


def perceptron(
    inputs: int, hidden: int, outputs: int, gain: float, activation: str
) -> nn.Sequential:
    """Return a net with two hidden layers and orthogonal weights, the last layer's scaled by `gain`."""
    return nn.Sequential(
        linear(inputs, hidden, math.sqrt(2)),
        ACTIVATIONS[activation](),
        linear(hidden, hidden, math.sqrt(2)),
        ACTIVATIONS[activation](),
        linear(hidden, outputs, gain),
    )


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a layer with orthogonal weights and a bias of 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
