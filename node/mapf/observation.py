"""What agents perceive: the cells around each, and the agents that each hears."""

import numpy as np

from node.mapf.world import MOVES, UNREACHABLE, Instance, distances

RADIUS = 4
PLANES = 6
NEAREST = 3  # agents that one hears, itself included


class Observer:
    """The observer of one instance; computes what does not change only once."""

    def __init__(self, instance: Instance, radius: int = RADIUS) -> None:
        self._radius = radius
        self._obstacles = np.pad(instance.obstacles, radius)
        far = np.stack([distances(instance.obstacles, goal) for goal in instance.goals])
        ways = np.stack([_shorter(distance) for distance in far])
        self._ways = np.pad(ways, [(0, 0), (0, 0), (radius, radius), (radius, radius)])

    def observe(self, positions: np.ndarray) -> np.ndarray:
        """Return what each agent sees in the square around it.

        Planes: other agents; obstacles (cells outside the map count as free); whether moving up, down, left or right
        from a cell brings this agent nearer to its goal.

        Args:
            positions: positions of the agents, shape (agents, 2).

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
        seen[:, 0, radius, radius] = False  # not the agent itself
        return seen


def _shorter(distance: np.ndarray) -> np.ndarray:
    """Return whether each of the four moves from a cell shortens the path: bool, shape (4, rows, columns)."""
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
    """Return whether agent i hears agent j: j is within i's square and among the agents nearest to i.

    Args:
        positions: positions of the agents, shape (agents, 2).
        radius: radius of the square.
        nearest: the most agents that one hears, itself included; ties go to the lower number.

    Returns:
        bool, shape (agents, agents); every agent hears itself.
    """
    apart = positions[:, None] - positions[None]
    near = (np.abs(apart) <= radius).all(2)
    order = np.argsort((apart**2).sum(2), axis=1, kind="stable")
    among = np.zeros_like(near)
    np.put_along_axis(among, order[:, :nearest], values=True, axis=1)
    heard: np.ndarray = near & among
    return heard
