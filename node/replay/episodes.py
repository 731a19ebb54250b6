"""What an actor did: a piece of an episode as a learner wants it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One episode, or what there is of it, of `length` steps by `agents` agents.

    Attributes:
        obs: what was seen, and what came after the last step: bool, shape (length + 1, agents, planes, width, width).
        hears: who heard whom, bool, shape (length + 1, agents, agents).
        hidden: what was remembered before each step, float16, shape (length, agents, hidden).
        actions: int8, shape (length, agents).
        rewards: float32, shape (length, agents).
        errors: how far values were from their targets, by the actor's own: float32, shape (length,).
        ended: whether it ended by itself, bool, shape ().
        version: of the weights that acted in each step, int64, shape (length,).
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
        """Steps."""
        return len(self.actions)

    @property
    def agents(self) -> int:
        """How many acted."""
        return int(self.actions.shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """From what `arrays` gave."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})
