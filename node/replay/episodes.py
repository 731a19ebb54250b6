"""A piece of an actor's episode, in the form that a learner needs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Episode:
    """An episode, or a part of one, of `length` steps by `agents` agents.

    Attributes:
        obs: observations before each step and after the last: bool, shape (length + 1, agents, planes, width, width).
        hears: which agent heard which, bool, shape (length + 1, agents, agents).
        hidden: the recurrent memory before each step, float16, shape (length, agents, hidden).
        actions: int8, shape (length, agents).
        rewards: float32, shape (length, agents).
        errors: distance of values from their targets, as the actor computed it: float32, shape (length,).
        ended: whether the episode ended by itself, bool, shape ().
        version: version of the weights that acted in each step, int64, shape (length,).
        made_at_s: Unix time of each step, float64, shape (length,).
    """

    obs: np.ndarray
    hears: np.ndarray
    hidden: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    errors: np.ndarray
    ended: np.ndarray
    version: np.ndarray
    made_at_s: np.ndarray

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.actions)

    @property
    def agents(self) -> int:
        """Number of agents."""
        return int(self.actions.shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Return an episode from the result of `arrays`."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})
