"""Draws numbers in proportion to their weights; draws and changes of weights take logarithmic time."""

import numpy as np


class SumTree:
    """A binary tree whose leaves are weights and whose nodes are sums (Schaul et al., 2016, arXiv 1511.05952, B.2.1).

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int) -> None:
        self._depth = max(1, (size - 1).bit_length())
        self._first = 2**self._depth  # the node of leaf 0; the root is node 1
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._sums[1])

    def weights(self, leaves: np.ndarray) -> np.ndarray:
        """Return the weights of these leaves."""
        found: np.ndarray = self._sums[self._first + leaves]
        return found

    def set(self, leaves: np.ndarray, weights: np.ndarray) -> None:
        """Set the weight of each of these leaves, 0 or more; of a leaf that occurs twice, the last weight counts."""
        nodes = self._first + np.asarray(leaves)
        self._sums[nodes] = weights
        for _ in range(self._depth):
            nodes = np.unique(nodes // 2)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def find(self, places: np.ndarray) -> np.ndarray:
        """Return the leaf at each place between 0 and `total`: leaves lie side by side, as wide as their weights."""
        nodes, left = np.ones(len(places), int), np.array(places, float)
        for _ in range(self._depth):
            nodes *= 2
            beyond = left >= self._sums[nodes]
            # Rounding may lead into a subtree without weight: then take the other.
            beyond &= self._sums[nodes + 1] > 0
            left -= np.where(beyond, self._sums[nodes], 0.0)
            nodes += beyond
        leaves: np.ndarray = nodes - self._first
        return leaves

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw leaves in proportion to their weights, one from each of `count` equal parts of the total."""
        width = self.total / count
        return self.find((np.arange(count) + random.random(count)) * width)
