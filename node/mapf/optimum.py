"""Plans of Conflict-Based Search, to compare a policy with what was possible.

The search minimises the sum of costs: in our world, no policy has a smaller sum. It does not minimise the makespan, the
steps until all agents stand on their goals at once, by which DHC measures an episode: another plan, even one with the
same sum of costs, may have a smaller makespan.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from node.mapf.world import Instance, distances

# A search that finds nothing takes about 0.1 to 0.2 s with 2 agents on 10 x 10, 1 to 6 s with 8 on 20 x 20.
MOST_NODES = 1000
Cell = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """Moves that bring all agents to their goals without any conflict.

    Attributes:
        positions: positions of the agents, starts first, integers, shape (steps + 1, agents, 2).
        sum_of_costs: sum over agents of the steps until each stands on its goal for good.
        nodes: number of search nodes that were expanded.
    """

    positions: np.ndarray
    sum_of_costs: int
    nodes: int

    @property
    def makespan(self) -> int:
        """Steps until all agents stand on their goals at once: the length of an episode."""
        return len(self.positions) - 1


@dataclass(frozen=True)
class Optimum:
    """The plans for many instances.

    Attributes:
        plans: one per instance, in their order; None if it was not solved.
    """

    plans: Sequence[Plan | None]

    @property
    def share_solved(self) -> float:
        """Share of instances that were solved; 0 if there are no instances."""
        return len(self._solved) / len(self.plans) if self.plans else 0.0

    @property
    def mean_makespan(self) -> float | None:
        """Mean makespan of the solved instances; None if none was solved."""
        return fmean(plan.makespan for plan in self._solved) if self._solved else None

    @property
    def mean_sum_of_costs(self) -> float | None:
        """Mean sum of costs of the solved instances; None if none was solved."""
        return fmean(plan.sum_of_costs for plan in self._solved) if self._solved else None

    @property
    def _solved(self) -> list[Plan]:
        return [plan for plan in self.plans if plan is not None]


def solve_all(instances: Iterable[Instance], most_nodes: int = MOST_NODES) -> Optimum:
    """Return plans for many instances, each with the bound of `solve`.

    Raises:
        ModuleNotFoundError: pymapf is not installed.
    """
    return Optimum([solve(instance, most_nodes) for instance in instances])


def solve(instance: Instance, most_nodes: int = MOST_NODES) -> Plan | None:
    """Return a plan of least sum of costs by Conflict-Based Search (Sharon et al., 2015, Artificial Intelligence 219).

    The search is pymapf's. The bound is on nodes, not on time, so that an instance always has the same result.

    Args:
        instance: the instance to solve.
        most_nodes: the most search nodes to expand.

    Returns:
        The plan; None if none was found within the bound. That proves nothing: there may be no plan or, on maps with
        narrow passages, one that takes the search very many nodes.

    Raises:
        ModuleNotFoundError: pymapf is not installed.
    """
    import pymapf  # here: training does not need it

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
    """Return the distance heuristic with obstacles: with pymapf's own, which ignores them, the search takes longer."""
    goals = _cells(instance.goals)
    far = {goal: distances(instance.obstacles, np.array(goal)).tolist() for goal in goals}
    return lambda cell, goal: far[goal][cell[0]][cell[1]]


def _cells(positions: np.ndarray) -> list[Cell]:
    return [(row, column) for row, column in positions.tolist()]
