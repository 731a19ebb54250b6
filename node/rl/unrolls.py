"""IMPALA's actors: act in several environments, and hand over a fixed number of steps at a time."""

import time
from collections.abc import Mapping

import numpy as np
import torch

from node.rl.environments import Environments
from node.rl.policy import ActorCritic
from node.transport.messages import Experience


class UnrollActor:
    """IMPALA's actors of one process: see `node.tasks.actor_learner.Actor`.

    Args:
        model: the policy to act by.
        environments: the environments to act in.
        length: steps of each that are handed over together.
        gamma: discount, for episodes that reach their time limit.
        seed: seed of the draws of actions.

    Attributes:
        version: version of the model's weights.
    """

    def __init__(
        self, model: ActorCritic, environments: Environments, length: int, gamma: float, seed: int
    ) -> None:
        self._model, self._environments = model, environments
        self._length, self._gamma = length, gamma
        self._random = torch.Generator().manual_seed(seed)
        self._obs = environments.reset()
        self._gained, self._lengths = np.zeros(len(self._obs)), np.zeros(len(self._obs))
        self._ended: list[tuple[float, float]] = []
        self._kept: list[dict[str, np.ndarray]] = []
        self._steps = 0
        self.version = 0

    @property
    def steps(self) -> int:
        """Steps made so far, of all environments together."""
        return self._steps

    def heed(self, advice: Mapping[str, object]) -> None:
        """Do nothing: the learner sends no advice."""
        return

    @torch.no_grad()
    def step(self) -> list[Experience]:
        """Make one step in every environment; return a piece of experience once it has enough steps."""
        obs = torch.from_numpy(self._obs)
        found = self._model.distribution(obs)
        actions = self._model.act(obs, self._noise(obs))
        step = self._environments.step(actions.numpy())
        rewards = step.rewards
        late = step.truncated & ~step.terminated
        if late.any():  # the critic's value of what would have come next
            worth = self._model.value(torch.from_numpy(step.last_obs)).numpy()
            rewards = rewards + self._gamma * worth * late
        self._kept.append(
            {
                "obs": self._obs,
                "actions": actions.numpy(),
                "log_probs": found.log_prob(actions).numpy(),
                "rewards": rewards.astype(np.float32),
                "done": step.terminated | step.truncated,
                "version": np.asarray(self.version),
                "made_at_s": np.asarray(time.time()),
            }
        )
        self._count(step.rewards, step.terminated | step.truncated)
        self._obs = step.obs
        self._steps += len(rewards)
        return [self._hand_over()] if len(self._kept) == self._length else []

    def _noise(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the noise for `ActorCritic.act`."""
        draw = torch.rand if self._environments.actions else torch.randn
        return draw(len(obs), self._model.noise_size, generator=self._random)

    def _count(self, rewards: np.ndarray, done: np.ndarray) -> None:
        self._gained += rewards
        self._lengths += 1
        for n in np.flatnonzero(done):
            self._ended.append((float(self._gained[n]), float(self._lengths[n])))
        self._gained[done] = self._lengths[done] = 0.0

    def _hand_over(self) -> Experience:
        names = [name for name in self._kept[0] if name != "obs"]
        arrays = {name: np.stack([one[name] for one in self._kept]) for name in names}
        arrays["obs"] = np.stack([*(one["obs"] for one in self._kept), self._obs])
        figures: dict[str, float] = {"episodes": len(self._ended)}
        figures["env_steps"] = arrays["rewards"].size
        if self._ended:
            returns, lengths = zip(*self._ended, strict=True)
            figures |= {"episode_return": float(np.mean(returns))}
            figures |= {"episode_length": float(np.mean(lengths))}
        self._kept, self._ended = [], []
        return Experience(arrays, figures)
