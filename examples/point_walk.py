"""An environment, rewards, a model and settings of one's own, in the form of Ksim's guide.

    python -m cluster.launch --profile wan -- examples/point_walk.py
    python -m cluster.launch --profile wan -- examples/point_walk.py num_envs=24 effort=0.2

A point on a line is to walk to the middle and stay there, with little effort.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from node.ksim import DistributedPPOConfig, DistributedPPOTask, Reward, Transition
from node.rl.policy import ActorCritic

TICK_S, EPISODE_TICKS, FARTHEST_M = 0.1, 100, 5.0


@dataclass
class WalkingConfig(DistributedPPOConfig):
    """The settings, with the weight of the effort."""

    effort: float = 0.05
    total_timesteps: int | None = 60_000
    grad_sync_period: int = 16


class PointOnALine(gymnasium.Env):
    """Observes place (m) and speed (m/s); an action is an acceleration (m/s²). It pays nothing by itself."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin somewhere near the middle."""
        super().reset(seed=seed)
        self.place_m, self.speed_m_s = self.np_random.uniform(-2, 2), 0.0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Accelerate."""
        self.speed_m_s += TICK_S * float(action[0])
        self.place_m += TICK_S * self.speed_m_s
        return self._seen(), 0.0, abs(self.place_m) > FARTHEST_M, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.place_m, self.speed_m_s], np.float32)


class NearTheMiddle(Reward):
    """1 in the middle, less with the distance."""

    def get_reward(self, transition: Transition) -> float:
        """Return a bell curve of the place."""
        return float(np.exp(-(transition.next_obs[0] ** 2)))


class Effort(Reward):
    """The square of the acceleration, as a cost."""

    def __init__(self, weight: float) -> None:
        self.scale = -weight

    def get_reward(self, transition: Transition) -> float:
        """Return the square."""
        return float(transition.action[0]) ** 2


class Walking(DistributedPPOTask[WalkingConfig]):
    """PPO with all of these."""

    def make_environment(self) -> gymnasium.Env:
        """Return a point with a time limit."""
        return gymnasium.wrappers.TimeLimit(PointOnALine(), EPISODE_TICKS)

    def get_rewards(self, physics_model: gymnasium.Env) -> Sequence[Reward]:
        """Return both rewards."""
        return [NearTheMiddle(), Effort(self.config.effort)]

    def _get_initial_model(self, rng: torch.Generator) -> ActorCritic:
        model = super()._get_initial_model(rng)
        model.critic = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
        return model


if __name__ == "__main__":
    Walking.launch(WalkingConfig())
