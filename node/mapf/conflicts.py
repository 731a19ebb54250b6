"""Who may move: DHC's rules for agents that all move at once."""

import numpy as np

from node.mapf.world import MOVES


def move(
    obstacles: np.ndarray, positions: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where agents come to, and whom a conflict stopped.

    In this order: (a) who would leave the map, or enter an obstacle, stays. (b) Of two that would change places both
    stay. (c) Of several movers to one cell the lowest number goes, where all of them still move; where one stands
    there, or was stopped, all others stay. (c) is repeated until nobody is stopped any more.

    Args:
        obstacles: bool, shape (rows, columns).
        positions: of agents, no two the same, shape (agents, 2).
        actions: numbers of MOVES, shape (agents,).

    Returns:
        Positions, no two the same, shape (agents, 2), and whether each was stopped, bool, shape (agents,).
    """
    wanted = positions + MOVES[actions]
    moving = actions != 0
    stopped = np.zeros(len(positions), bool)

    def stop(agents: np.ndarray) -> None:
        wanted[agents] = positions[agents]
        stopped[agents], moving[agents] = True, False

    inside = ((wanted >= 0) & (wanted < obstacles.shape)).all(1)
    at = np.where(inside[:, None], wanted, positions)
    stop(np.flatnonzero(moving & (~inside | obstacles[at[:, 0], at[:, 1]])))
    stop(_swapping(positions, wanted, moving))
    while len(losers := _losers(wanted, moving)):
        stop(losers)
    return wanted, stopped


def _swapping(positions: np.ndarray, wanted: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """Agents that would change places with another."""
    into = (wanted[:, None] == positions[None]).all(2)  # i wants j's cell
    return np.flatnonzero(((into & into.T) & moving[:, None] & moving[None]).any(1))


def _losers(wanted: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """Movers to a cell that is another's: of the first cell where there are some."""
    same = (wanted[:, None] == wanted[None]).all(2)
    for agent in np.flatnonzero(moving & (same.sum(1) > 1)):
        together = np.flatnonzero(same[agent])
        if moving[together].all():
            return together[1:]
        movers: np.ndarray = together[moving[together]]
        return movers
    return np.array([], int)
