"""Rewards of a task's own, as in Ksim: a list of them, whose scaled sum replaces the environment's reward."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple


class Transition(NamedTuple):
    """One step of one environment.

    Attributes:
        obs: the observation acted on, as the environment returned it.
        action: the action.
        next_obs: the observation after it.
        reward: the environment's own reward.
        terminated: whether the episode ended by itself.
        truncated: whether the episode reached its time limit.
        info: what else the environment tells.
    """

    obs: Any
    action: Any
    next_obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Reward(ABC):
    """A reward; `scale` is its weight."""

    scale: float = 1.0

    @abstractmethod
    def get_reward(self, transition: Transition) -> float:
        """Return the reward of one step. The same step must always have the same reward."""
