"""Collects experience, one rollout at a time, and computes the advantages of its actions."""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from node.rl.environments import Environments
from node.rl.moments import sums_of
from node.rl.policy import ActorCritic
from node.rl.regroup import CollectorState


@dataclass(frozen=True)
class Rollout:
    """The experience of n environments over some steps. All tensors have shape (steps · n, …), ordered by step.

    Attributes:
        seen: observations as the model saw them, float32, (…, features).
        actions: int64 (…,), or float32 (…, action_size).
        log_probs: log-probabilities of the actions when they were drawn.
        values: the critic's values at that time.
        advantages: see `advantages`.
    """

    seen: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor

    @property
    def returns(self) -> Tensor:
        """The critic's targets."""
        return self.advantages + self.values

    def take(self, samples: Tensor) -> Self:
        """Return a rollout of these samples alone: int64, shape (samples,)."""
        return type(self)(*(getattr(self, field.name)[samples] for field in fields(self)))


class Collector:
    """Steps a rank's environments and collects their experience.

    Args:
        environments: their first episodes begin now.
        gamma: discount.
        gae_lambda: see `advantages`.

    Attributes:
        ended: (sum of rewards, steps) of each episode that ended in the last rollout.
    """

    def __init__(self, environments: Environments, gamma: float, gae_lambda: float) -> None:
        self._environments = environments
        self._gamma, self._gae_lambda = gamma, gae_lambda
        self._obs = torch.from_numpy(environments.reset())
        self._rewards, self._lengths, self._discounted = torch.zeros(3, len(self._obs))
        self.ended: list[tuple[float, int]] = []

    @torch.no_grad()
    def collect(self, model: ActorCritic, noise: Tensor) -> tuple[Rollout, Tensor]:
        """Act for as many steps as `noise` has.

        Args:
            model: as it is now.
            noise: shape (steps, n, …): `ActorCritic.act`.

        Returns:
            The rollout, and the input of `Normaliser.add`.
        """
        device = noise.device
        self.ended = []
        kept, raw, discounted = [], [], []
        for one in noise:
            seen = model.see(self._obs.to(device))
            actions = model.act(seen, one)
            log_probs = model.distribution(seen).log_prob(actions)
            values = model.value(seen)
            raw.append(self._obs)
            rewards, done = self._step(model, actions)
            discounted.append(self._discounted.clone())
            self._discounted[done] = 0.0
            kept.append((seen, actions, log_probs, values, rewards.to(device), done.to(device)))
        seen, actions, log_probs, values, rewards, done = map(torch.stack, zip(*kept, strict=True))
        last_values = model.value(model.see(self._obs.to(device)))
        gains = advantages(rewards, values, done, last_values, self._gamma, self._gae_lambda)
        sums = [sums_of(torch.cat(raw)), sums_of(torch.cat(discounted).unsqueeze(1))]
        flat = (tensor.flatten(0, 1) for tensor in (seen, actions, log_probs, values, gains))
        return Rollout(*flat), torch.cat(sums)

    def _step(self, model: ActorCritic, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Act; return rewards as they are learnt, and which episodes ended, shape (n,) each.

        If an episode reached its time limit, its last reward includes the critic's value of what would have come
        next, as in Stable-Baselines3; CleanRL treats that as an end.
        """
        step = self._environments.step(actions.cpu().numpy())
        self._obs, rewards = torch.from_numpy(step.obs), torch.from_numpy(step.rewards)
        done = torch.from_numpy(step.terminated | step.truncated)
        self._count(rewards, done)
        rewards = model.scale(rewards.to(actions.device))
        if step.truncated.any():
            late = torch.from_numpy(step.truncated & ~step.terminated).to(actions.device)
            last = torch.from_numpy(step.last_obs).to(actions.device)
            rewards = rewards + self._gamma * model.value(model.see(last)) * late
        return rewards, done

    def _count(self, rewards: Tensor, done: Tensor) -> None:
        self._rewards += rewards
        self._lengths += 1
        self._discounted.mul_(self._gamma).add_(rewards)
        for n in done.nonzero().flatten().tolist():
            self.ended.append((float(self._rewards[n]), int(self._lengths[n])))
        self._rewards[done] = 0.0
        self._lengths[done] = 0.0

    def state(self) -> CollectorState:
        """Return the input of `load_state`: strings and tensors."""
        counts = torch.stack([self._rewards, self._lengths, self._discounted])
        return {"environments": self._environments.state(), "counts": counts}

    def load_state(self, state: CollectorState) -> None:
        """Continue from what `state` returned."""
        self._obs = torch.from_numpy(self._environments.load_state(state["environments"]))
        self._rewards, self._lengths, self._discounted = state["counts"].cpu().clone()


def advantages(
    rewards: Tensor,
    values: Tensor,
    done: Tensor,
    last_values: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Return generalised advantage estimates (Schulman et al., 2016, arXiv 1506.02438, equation 16).

    Args:
        rewards: shape (steps, n).
        values: of the observations acted on, (steps, n).
        done: whether the episode ended with the step, (steps, n).
        last_values: of the observations after the last step, (n,).
        gamma: discount.
        gae_lambda: 0 trusts the critic, 1 the observed rewards.

    Returns:
        Shape (steps, n).
    """
    gains = torch.empty_like(rewards)
    gain, following = torch.zeros_like(last_values), last_values
    for step in range(len(rewards) - 1, -1, -1):
        goes_on = ~done[step]
        error = rewards[step] + gamma * following * goes_on - values[step]
        gain = error + gamma * gae_lambda * gain * goes_on
        gains[step], following = gain, values[step]
    return gains
