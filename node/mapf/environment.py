"""Episodes of multi-agent path finding, and their rewards."""

from typing import NamedTuple

import numpy as np

from node.mapf.conflicts import move
from node.mapf.observation import Observer, who_hears_whom
from node.mapf.world import Instance

MOVE, STAY_OFF_GOAL, STAY_ON_GOAL, COLLISION, FINISH = -0.075, -0.075, 0.0, -0.5, 3.0
MOST_STEPS = 256


class Outcome(NamedTuple):
    """The outcome of a step.

    Attributes:
        obs: what each agent sees, bool, shape (agents, planes, width, width).
        hears: which agent hears which, bool, shape (agents, agents).
        rewards: float32, shape (agents,).
        done: whether all agents stand on their goals.
        truncated: whether the step limit is reached.
    """

    obs: np.ndarray
    hears: np.ndarray
    rewards: np.ndarray
    done: bool
    truncated: bool


class Environment:
    """One episode.

    Args:
        instance: map, starts and goals.
        most_steps: step limit.

    Attributes:
        positions: positions of the agents, shape (agents, 2).
        steps: steps made so far.
    """

    def __init__(self, instance: Instance, most_steps: int = MOST_STEPS) -> None:
        self.instance = instance
        self.positions = instance.starts.copy()
        self.steps = 0
        self._most_steps = most_steps
        self._observer = Observer(instance)

    def observe(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `obs` and `hears`: see `Outcome`."""
        return self._observer.observe(self.positions), who_hears_whom(self.positions)

    def step(self, actions: np.ndarray) -> Outcome:
        """Let all agents act at once; actions are indices into world.MOVES, shape (agents,)."""
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
