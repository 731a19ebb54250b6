"""Conflicts between agents that all move at once, by DHC's rules."""

import numpy as np

from node.mapf.world import MOVES


def move(
    obstacles: np.ndarray, positions: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where agents end up, and which ones a conflict stopped.

    In this order: (a) an agent that would leave the map or enter an obstacle stays. (b) Two agents that would swap
    places both stay. (c) If several agents want one cell and all of them move, the one with the lowest number goes; if
    one of them stands there or was stopped, all others stay. (c) is repeated until no further agent is stopped.

    Args:
        obstacles: bool, shape (rows, columns).
        positions: positions of agents, all different, shape (agents, 2).
        actions: indices into MOVES, shape (agents,).

    Returns:
        Positions, all different, shape (agents, 2), and whether each agent was stopped, bool, shape (agents,).
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
    """Return the agents that would swap places with another."""
    into = (wanted[:, None] == positions[None]).all(2)  # i wants j's cell
    return np.flatnonzero(((into & into.T) & moving[:, None] & moving[None]).any(1))


def _losers(wanted: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """Return the agents that lose the first contested cell; empty if no cell is contested."""
    same = (wanted[:, None] == wanted[None]).all(2)
    for agent in np.flatnonzero(moving & (same.sum(1) > 1)):
        together = np.flatnonzero(same[agent])
        if moving[together].all():
            return together[1:]
        movers: np.ndarray = together[moving[together]]
        return movers
    return np.array([], int)
