"""What was possible: plans of Conflict-Based Search, to print beside what a policy does.

Its optimum is the least sum of costs: in our world no policy comes below that. It does not look at the makespan, the
steps until all stand on their goals at once, by which DHC measures an episode: another plan may need fewer of them,
also one of the same sum.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from node.mapf.world import Instance, distances

# Where nothing is found: some 0.1 to 0.2 s with 2 agents on 10 x 10, 1 to 6 s with 8 on 20 x 20.
MOST_NODES = 1000
Cell = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """How all come to their goals, and nobody is ever stopped.

    Attributes:
        positions: of the agents, first where they start, whole numbers, shape (steps + 1, agents, 2).
        sum_of_costs: steps of all agents added up, each one's until it stands on its goal for good.
        nodes: of the search that were expanded.
    """

    positions: np.ndarray
    sum_of_costs: int
    nodes: int

    @property
    def makespan(self) -> int:
        """Steps until all stand on their goals at once: those of an episode."""
        return len(self.positions) - 1


@dataclass(frozen=True)
class Optimum:
    """Of many instances.

    Attributes:
        plans: one an instance, in their order; None where it was not solved.
    """

    plans: Sequence[Plan | None]

    @property
    def share_solved(self) -> float:
        """Of all instances; 0 where there are none."""
        return len(self._solved) / len(self.plans) if self.plans else 0.0

    @property
    def mean_makespan(self) -> float | None:
        """Steps, of those that were solved; None where none was."""
        return fmean(plan.makespan for plan in self._solved) if self._solved else None

    @property
    def mean_sum_of_costs(self) -> float | None:
        """Steps, of those that were solved; None where none was."""
        return fmean(plan.sum_of_costs for plan in self._solved) if self._solved else None

    @property
    def _solved(self) -> list[Plan]:
        return [plan for plan in self.plans if plan is not None]


def solve_all(instances: Iterable[Instance], most_nodes: int = MOST_NODES) -> Optimum:
    """Plans for many instances, each with the bound of `solve`.

    Raises:
        ModuleNotFoundError: pymapf is not installed.
    """
    return Optimum([solve(instance, most_nodes) for instance in instances])


def solve(instance: Instance, most_nodes: int = MOST_NODES) -> Plan | None:
    """A plan with the least sum of costs, by Conflict-Based Search (Sharon et al., 2015, Artificial Intelligence 219).

    It is pymapf's. The bound is on nodes, not on time, so that the same instance always gives the same.

    Args:
        instance: what to solve.
        most_nodes: of the search, to expand at most.

    Returns:
        None where nothing was found within the bound, which proves nothing: there may be no plan, or, where ways are
        narrow, one that takes the search very many nodes.

    Raises:
        ModuleNotFoundError: pymapf is not installed.
    """
    import pymapf  # here: training does without

    ends = zip(_cells(instance.starts), _cells(instance.goals), strict=True)
    agents = [pymapf.Agent(str(n), start, goal) for n, (start, goal) in enumerate(ends)]
    problem = pymapf.MAPFProblem(pymapf.GridMap(instance.obstacles), agents)
    search = pymapf.ConflictBasedSearch(_moves_to_goals(instance), max_expansions=most_nodes)
    found = search.solve(problem)
    if found is None:
        return None
    moments = range(found.makespan + 1)
    positions = [[found.position_at(agent.name, t) for agent in agents] for t in moments]
    return Plan(np.array(positions), found.sum_of_costs, found.expansions)


def _moves_to_goals(instance: Instance) -> Callable[[Cell, Cell], int]:
    """How far it is from a cell to a goal, past obstacles: pymapf's own estimate, without them, searches longer."""
    goals = _cells(instance.goals)
    far = {goal: distances(instance.obstacles, np.array(goal)).tolist() for goal in goals}
    return lambda cell, goal: far[goal][cell[0]][cell[1]]


def _cells(positions: np.ndarray) -> list[Cell]:
    return [(row, column) for row, column in positions.tolist()]
