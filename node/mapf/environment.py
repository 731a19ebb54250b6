"""Episodes of multi-agent path finding, and their rewards."""

from typing import NamedTuple

import numpy as np

from node.mapf.conflicts import move
from node.mapf.observation import Observer, who_hears_whom
from node.mapf.world import Instance

MOVE, STAY_OFF_GOAL, STAY_ON_GOAL, COLLISION, FINISH = -0.075, -0.075, 0.0, -0.5, 3.0
MOST_STEPS = 256


class Outcome(NamedTuple):
    """What a step gave.

    Attributes:
        obs: bool, shape (agents, planes, width, width).
        hears: who hears whom, bool, shape (agents, agents).
        rewards: float32, shape (agents,).
        done: whether all stand on their goals.
        truncated: whether time is up.
    """

    obs: np.ndarray
    hears: np.ndarray
    rewards: np.ndarray
    done: bool
    truncated: bool


class Environment:
    """One episode.

    Args:
        instance: what it begins with.
        most_steps: when time is up.

    Attributes:
        positions: of the agents, shape (agents, 2).
        steps: made so far.
    """

    def __init__(self, instance: Instance, most_steps: int = MOST_STEPS) -> None:
        self.instance = instance
        self.positions = instance.starts.copy()
        self.steps = 0
        self._most_steps = most_steps
        self._observer = Observer(instance)

    def observe(self) -> tuple[np.ndarray, np.ndarray]:
        """What all agents see, and who hears whom: see `Outcome`."""
        return self._observer.observe(self.positions), who_hears_whom(self.positions)

    def step(self, actions: np.ndarray) -> Outcome:
        """All agents act at once: numbers of world.MOVES, shape (agents,)."""
        self.positions, stopped = move(self.instance.obstacles, self.positions, actions)
        self.steps += 1
        at_goal = (self.positions == self.instance.goals).all(1)
        done = bool(at_goal.all())
        if done:
            rewards = np.full(len(actions), FINISH)
        else:
            stays = np.where(at_goal, STAY_ON_GOAL, STAY_OFF_GOAL)
            rewards = np.where(stopped, COLLISION, np.where(actions == 0, stays, MOVE))
        truncated = not done and self.steps >= self._most_steps
        return Outcome(*self.observe(), rewards.astype(np.float32), done, truncated)
