"""What agents see: the cells around each, and whom each may hear."""

import numpy as np

from node.mapf.world import MOVES, UNREACHABLE, Instance, distances

RADIUS = 4
PLANES = 6
NEAREST = 3  # who is heard, oneself among them


class Observer:
    """Of one instance: what does not change of it is reckoned once."""

    def __init__(self, instance: Instance, radius: int = RADIUS) -> None:
        self._radius = radius
        self._obstacles = np.pad(instance.obstacles, radius)
        far = np.stack([distances(instance.obstacles, goal) for goal in instance.goals])
        ways = np.stack([_shorter(distance) for distance in far])
        self._ways = np.pad(ways, [(0, 0), (0, 0), (radius, radius), (radius, radius)])

    def observe(self, positions: np.ndarray) -> np.ndarray:
        """What each agent sees in the square around it.

        Planes: other agents; obstacles (what is outside of the map counts as free); whether moving up, down, left,
        right from a cell brings this agent nearer to its goal.

        Args:
            positions: shape (agents, 2).

        Returns:
            bool, shape (agents, PLANES, 2 · radius + 1, 2 · radius + 1).
        """
        radius, width = self._radius, 2 * self._radius + 1
        agents = np.zeros(self._obstacles.shape, bool)
        agents[positions[:, 0] + radius, positions[:, 1] + radius] = True
        seen = np.empty((len(positions), PLANES, width, width), bool)
        for n, (row, column) in enumerate(positions):
            square = (..., slice(row, row + width), slice(column, column + width))
            seen[n, 0], seen[n, 1] = agents[square], self._obstacles[square]
            seen[n, 2:] = self._ways[n][square]
        seen[:, 0, radius, radius] = False  # oneself
        return seen


def _shorter(distance: np.ndarray) -> np.ndarray:
    """Whether each of the four moves from a cell shortens the way: bool, shape (4, rows, columns)."""
    padded = np.pad(distance, 1, constant_values=UNREACHABLE)
    rows, columns = distance.shape
    ways = []
    for down, right in MOVES[1:]:
        there = padded[1 + down : 1 + down + rows, 1 + right : 1 + right + columns]
        ways.append((there != UNREACHABLE) & (distance != UNREACHABLE) & (there < distance))
    return np.stack(ways)


def who_hears_whom(
    positions: np.ndarray, radius: int = RADIUS, nearest: int = NEAREST
) -> np.ndarray:
    """Whether agent i hears agent j: j is within i's square, and among the nearest to i, i itself among them.

    Args:
        positions: shape (agents, 2).
        radius: of the square.
        nearest: how many at most, oneself among them; of two as near the lower number.

    Returns:
        bool, shape (agents, agents); everyone hears itself.
    """
    apart = positions[:, None] - positions[None]
    near = (np.abs(apart) <= radius).all(2)
    order = np.argsort((apart**2).sum(2), axis=1, kind="stable")
    among = np.zeros_like(near)
    np.put_along_axis(among, order[:, :nearest], values=True, axis=1)
    heard: np.ndarray = near & among
    return heard
