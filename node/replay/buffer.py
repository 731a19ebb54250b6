"""The latest episodes, drawn from by priority, a sequence at a time.

An episode is cut into sequences of so many steps. Before its first step a learner may bring memory up to date over
some more (burn-in), from what the actor remembered there (R2D2: Kapturowski et al., 2019).
"""

from typing import NamedTuple

import numpy as np

from node.replay.episodes import Episode
from node.replay.sum_tree import SumTree

ALPHA, BETA = 0.6, 0.4  # of priorities and of what corrects for them: Schaul et al., 2016, and DHC
LARGEST_SHARE = (
    0.9  # of a sequence's priority, that its largest error has; the rest has their mean (R2D2)
)
SMALL = 1e-6


class Draw(NamedTuple):
    """A batch of sequences.

    Attributes:
        leaves: by which `Buffer.update` knows them, shape (batch,).
        episodes: of which each is.
        begins: the first step that is learnt, in its episode.
        ends: the step after the last one.
        weights: what each counts for, the largest 1, float32, shape (batch,).
    """

    leaves: np.ndarray
    episodes: list[Episode]
    begins: np.ndarray
    ends: np.ndarray
    weights: np.ndarray


class Buffer:
    """A ring of episodes.

    Args:
        capacity: how many episodes; the oldest goes.
        most_steps: of an episode.
        sequence: steps of a sequence.
        seed: of what is drawn.
    """

    def __init__(self, capacity: int, most_steps: int, sequence: int, seed: int) -> None:
        self._sequence = sequence
        self._places = -(-most_steps // sequence)  # leaves of an episode
        self._episodes: list[Episode | None] = [None] * capacity
        self._next = 0
        self._tree = SumTree(capacity * self._places)
        self._random = np.random.default_rng(seed)
        self.steps = 0

    def __len__(self) -> int:
        """Episodes that are there."""
        return sum(episode is not None for episode in self._episodes)

    def add(self, episode: Episode) -> None:
        """Keep an episode; its first priorities are by the actor's own errors.

        Raises:
            ValueError: it is empty or too long, or an error is no number.
        """
        if not 0 < episode.length <= self._places * self._sequence:
            raise ValueError(f"an episode of {episode.length} steps")
        _require_finite(episode.errors)
        slot, self._next = self._next, (self._next + 1) % len(self._episodes)
        before = self._episodes[slot]
        self.steps += episode.length - (before.length if before else 0)
        self._episodes[slot] = episode
        starts = range(0, episode.length, self._sequence)
        weights = np.zeros(self._places)
        pieces = [episode.errors[start : start + self._sequence] for start in starts]
        weights[: len(pieces)] = [priority(piece) for piece in pieces]
        self._tree.set(slot * self._places + np.arange(self._places), weights)

    def draw(self, count: int) -> Draw:
        """So many sequences, in proportion to their priorities, and what makes up for that.

        Raises:
            ValueError: nothing is there.
        """
        if not self._tree.total:
            raise ValueError("no episode has been added")
        leaves = self._tree.draw(count, self._random)
        slots, places = np.divmod(leaves, self._places)
        episodes = [episode for slot in slots if (episode := self._episodes[slot]) is not None]
        begins = places * self._sequence
        ends = np.minimum(begins + self._sequence, [episode.length for episode in episodes])
        # 1 / (number · probability), to the power of beta; the number falls out where the largest is 1.
        weights = self._tree.weights(leaves) ** -BETA
        return Draw(leaves, episodes, begins, ends, (weights / weights.max()).astype(np.float32))

    def update(self, draw: Draw, errors: list[np.ndarray]) -> None:
        """Give sequences priorities by what their errors are now; those whose episode has gone are left alone.

        Raises:
            ValueError: an error is no number.
        """
        for one in errors:
            _require_finite(one)
        slots = draw.leaves // self._places
        there = [self._episodes[s] is e for s, e in zip(slots, draw.episodes, strict=True)]
        kept = np.flatnonzero(there)
        if len(kept):
            weights = np.array([priority(errors[n]) for n in kept])
            self._tree.set(draw.leaves[kept], weights)


def _require_finite(errors: np.ndarray) -> None:
    if not np.isfinite(errors).all():
        raise ValueError("an error is no number: what was learnt diverges")


def priority(errors: np.ndarray) -> float:
    """The weight of a sequence with these errors, shape (steps,)."""
    sizes = np.abs(errors) + SMALL
    mixed = LARGEST_SHARE * sizes.max() + (1 - LARGEST_SHARE) * sizes.mean()
    return float(mixed**ALPHA)
