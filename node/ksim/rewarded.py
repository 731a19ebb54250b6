"""An environment with rewards of the task's own."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import gymnasium

from node.ksim.rewards import Reward, Transition


class Rewarded(gymnasium.Wrapper):
    """An environment whose reward is the scaled sum of other rewards."""

    def __init__(self, env: gymnasium.Env, rewards: Sequence[Reward]) -> None:
        super().__init__(env)
        self._rewards = rewards

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401
        """Begin an episode."""
        obs, info = super().reset(seed=seed, options=dict(options) if options else None)
        self._obs = copy(obs)  # the environment may change its own
        return obs, info

    def step(self, action: Any) -> Any:  # noqa: ANN401
        """Act."""
        obs, reward, terminated, truncated, info = super().step(action)
        step = Transition(self._obs, action, obs, float(reward), terminated, truncated, info)
        self._obs = copy(obs)
        gained = sum(one.scale * one.get_reward(step) for one in self._rewards)
        return obs, float(gained), terminated, truncated, info
