"""The latest episodes, drawn from by priority, one sequence at a time.

An episode is cut into sequences of a fixed number of steps. A learner may first bring memory up to date over some
earlier steps (burn-in), starting from the memory that the actor had there (R2D2: Kapturowski et al., 2019).
"""

from typing import NamedTuple

import numpy as np

from node.replay.episodes import Episode
from node.replay.sum_tree import SumTree

# Exponents of the priorities and of the weights that correct for them: Schaul et al., 2016, and DHC.
ALPHA, BETA = 0.6, 0.4
# The share of the largest error in a sequence's priority; the mean error has the rest (R2D2).
LARGEST_SHARE = 0.9
SMALL = 1e-6


class Draw(NamedTuple):
    """A batch of sequences.

    Attributes:
        leaves: the leaves by which `Buffer.update` identifies them, shape (batch,).
        episodes: the episode of each.
        begins: the first step to learn, within its episode.
        ends: the step after the last one.
        weights: weight of each in the loss, the largest 1, float32, shape (batch,).
    """

    leaves: np.ndarray
    episodes: list[Episode]
    begins: np.ndarray
    ends: np.ndarray
    weights: np.ndarray


class Buffer:
    """A ring of episodes.

    Args:
        capacity: largest number of episodes; a new one replaces the oldest.
        most_steps: largest number of steps in an episode.
        sequence: steps of a sequence.
        seed: seed of the draws.
    """

    def __init__(self, capacity: int, most_steps: int, sequence: int, seed: int) -> None:
        self._sequence = sequence
        self._places = -(-most_steps // sequence)  # leaves per episode
        self._episodes: list[Episode | None] = [None] * capacity
        self._next = 0
        self._tree = SumTree(capacity * self._places)
        self._random = np.random.default_rng(seed)
        self.steps = 0

    def __len__(self) -> int:
        """Return the number of episodes."""
        return sum(episode is not None for episode in self._episodes)

    def add(self, episode: Episode) -> None:
        """Keep an episode; its first priorities come from the actor's own errors.

        Raises:
            ValueError: it is empty or too long, or an error is not finite.
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
        """Draw `count` sequences in proportion to their priorities, with weights that correct for that.

        Raises:
            ValueError: the buffer is empty.
        """
        if not self._tree.total:
            raise ValueError("no episode has been added")
        leaves = self._tree.draw(count, self._random)
        slots, places = np.divmod(leaves, self._places)
        episodes = [episode for slot in slots if (episode := self._episodes[slot]) is not None]
        begins = places * self._sequence
        ends = np.minimum(begins + self._sequence, [episode.length for episode in episodes])
        # 1 / (number · probability), to the power of beta; scaling the largest to 1 cancels the number.
        weights = self._tree.weights(leaves) ** -BETA
        return Draw(leaves, episodes, begins, ends, (weights / weights.max()).astype(np.float32))

    def update(self, draw: Draw, errors: list[np.ndarray]) -> None:
        """Set the priorities of sequences from their current errors; skip those whose episode was replaced.

        Raises:
            ValueError: an error is not finite.
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
    """Return the weight of a sequence with these errors, shape (steps,); finite as they are.

    Computed with 64 bits: with the 32 of an actor's errors, the sum of some large ones would be infinite, and all
    weights of a batch no numbers.
    """
    sizes = np.abs(errors.astype(np.float64)) + SMALL
    mixed = LARGEST_SHARE * sizes.max() + (1 - LARGEST_SHARE) * sizes.mean()
    return float(mixed**ALPHA)
