"""Maps with obstacles, and where agents start and want to go."""

from collections import deque
from dataclasses import dataclass

import numpy as np

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # stay, up, down, left, right
UNREACHABLE = -1
TRAINING_DENSITY = (0.0, 0.33, 0.5)  # left, mode and right of a triangular distribution
TRIES = 100


@dataclass(frozen=True)
class Instance:
    """A map with the starts and goals of agents: the input of an episode.

    Attributes:
        obstacles: bool, shape (rows, columns).
        starts: start cell of each agent, integers, shape (agents, 2): row, column.
        goals: likewise; each can be reached from its start.
    """

    obstacles: np.ndarray
    starts: np.ndarray
    goals: np.ndarray


def draw_instance(
    random: np.random.Generator, agents: int, size: int, density: float | None = None
) -> Instance:
    """Draw an instance: random obstacles and, for each agent, a start and a goal in one component.

    The probability of a component is proportional to its free cells. No two of all starts and goals are the same.

    Args:
        random: random generator.
        agents: number of agents.
        size: number of rows, and of columns.
        density: share of cells with an obstacle; None: drawn as DHC's training does.

    Raises:
        ValueError: no such map holds so many agents.
    """
    for _ in range(TRIES):
        share = random.triangular(*TRAINING_DENSITY) if density is None else density
        obstacles = random.random((size, size)) < share
        found = _place(random, components(obstacles), agents)
        if found is not None:
            return Instance(obstacles, *found)
    raise ValueError(f"no map of {size} x {size} holds {agents} agents")


def _place(
    random: np.random.Generator, parts: list[np.ndarray], agents: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return starts and goals; None if the parts cannot hold so many agents."""
    free = [list(random.permutation(part)) for part in parts]
    placed: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(agents):
        weights = np.array([len(cells) if len(cells) > 1 else 0 for cells in free], float)
        if not weights.any():
            return None
        n = int(random.choice(len(free), p=weights / weights.sum()))
        placed.append((free[n].pop(), free[n].pop()))
    first, last = zip(*placed, strict=True)
    return np.stack(first), np.stack(last)


def components(obstacles: np.ndarray) -> list[np.ndarray]:
    """Return the connected components of free cells with at least two cells, each of shape (cells, 2)."""
    left = {tuple(cell) for cell in np.argwhere(~obstacles).tolist()}
    found = []
    while left:
        part = [left.pop()]
        for row, column in part:  # `part` grows during the loop
            for down, right in MOVES[1:].tolist():
                cell = (row + down, column + right)
                if cell in left:
                    left.remove(cell)
                    part.append(cell)
        if len(part) > 1:
            found.append(np.array(sorted(part)))
    return found


def distances(obstacles: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return the moves from each cell to a goal, integers, shape (rows, columns); UNREACHABLE if there is no path."""
    far = np.full(obstacles.shape, UNREACHABLE)
    far[tuple(goal)] = 0
    waiting = deque([tuple(goal.tolist())])
    rows, columns = obstacles.shape
    while waiting:
        row, column = waiting.popleft()
        for down, right in MOVES[1:].tolist():
            cell = (row + down, column + right)
            inside = 0 <= cell[0] < rows and 0 <= cell[1] < columns
            if inside and not obstacles[cell] and far[cell] == UNREACHABLE:
                far[cell] = far[row, column] + 1
                waiting.append(cell)
    return far
