"""Tests of CBS's plans: our environment executes them as they are, and no joint action costs less.

Also tests pymapf's environment against ours: a move that CBS may plan, agents may make.
"""

import heapq
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from pymapf import Agent, ConflictBasedSearch, GridMap, MAPFProblem
from pymapf.rl import MAPFEnv

from node.mapf.conflicts import move
from node.mapf.environment import Environment
from node.mapf.optimum import Optimum, solve, solve_all
from node.mapf.world import MOVES, Instance, draw_instance

STAY = 0


def instance(text):
    """Parse a map: `#` is an obstacle; agent 0 goes from `0` to `a`, agent 1 from `1` to `b`."""
    rows = text.split()
    cells = {c: (r, k) for r, row in enumerate(rows) for k, c in enumerate(row) if c not in ".#"}
    obstacles = np.array([[c == "#" for c in row] for row in rows])
    starts, goals = (
        np.array([cells[name] for name in sorted(cells) if name.isdigit() == is_start])
        for is_start in (True, False)
    )
    return Instance(obstacles, starts, goals)


@pytest.mark.parametrize(
    ("text", "sum_of_costs", "makespan"),
    [
        ("0.a", 2, 2),
        ("0ab1", 2, 1),
        ("01ab", 4, 2),  # one follows the other
        ("0b a1", 2, 1),  # past each other
        # 1 makes room for 0, whose way leads over 1's goal, and returns: three steps and four.
        ("0b1a ##.#", 3 + 4, 4),
        # One walks around the other: ten steps and one. If 1 let 0 pass, all would finish in eight.
        ("#####1### 0....b..a ####...##", 10 + 1, 10),
    ],
)
def test_plans_by_hand(text, sum_of_costs, makespan):
    plan = solve(instance(text))
    assert (plan.sum_of_costs, plan.makespan) == (sum_of_costs, makespan)
    assert plan.positions.shape == (makespan + 1, len(instance(text).starts), 2)


def test_the_makespan_is_not_the_least():
    passing = instance("#####1### 0....b..a ####...##")
    assert solve(passing).makespan == 10
    assert least(passing, lambda on_the_way: 1) == 8


def test_who_cannot_pass_is_not_solved_within_the_bound():
    assert solve(instance("0.b ### 1.a"), most_nodes=100) is None  # there is no path
    assert solve(instance("0ba1"), most_nodes=100) is None  # there is no room to pass


def test_nodes_are_counted_and_bounded():
    hard = instance("0b1a ##.#")
    plan = solve(hard)
    assert plan.nodes > 1
    again = solve(hard, most_nodes=plan.nodes)
    assert again.nodes == plan.nodes and np.array_equal(again.positions, plan.positions)
    assert solve(hard, most_nodes=plan.nodes - 1) is None


def test_figures_of_many():
    optimum = solve_all(instance(text) for text in ("0.a", "0ba1", "01ab", "0ab1"))
    assert [plan is None for plan in optimum.plans] == [False, True, False, False]
    assert optimum.share_solved == 0.75
    assert optimum.mean_makespan == pytest.approx((2 + 2 + 1) / 3)
    assert optimum.mean_sum_of_costs == pytest.approx((2 + 4 + 2) / 3)


@pytest.mark.parametrize("plans", [[], [None]])
def test_figures_of_nothing(plans):
    optimum = Optimum(plans)
    assert optimum.share_solved == 0
    assert optimum.mean_makespan is None and optimum.mean_sum_of_costs is None


@pytest.mark.parametrize(
    ("agents", "size", "density", "count"),
    [(1, 10, None, 20), (2, 4, 0.2, 80), (2, 10, None, 60), (4, 6, 0.1, 40), (8, 20, 0.2, 4)],
)
def test_our_world_runs_plans_as_they_are(agents, size, density, count):
    random = np.random.default_rng(agents)
    solved = 0
    for _ in range(count):
        drawn = draw_instance(random, agents, size, density)
        plan = solve(drawn, most_nodes=200)
        if plan is not None:
            assert replay(drawn, plan) == [False] * (plan.makespan - 1) + [True]
            assert plan.sum_of_costs == sum_of_costs(drawn, plan)
            solved += 1
    assert solved > count / 2


def replay(drawn, plan):
    """Execute a plan, check that agents are where it says, and return whether the episode was done after each step."""
    environment = Environment(drawn, most_steps=plan.makespan + 1)
    done = []
    for here, there in pairwise(plan.positions):
        actions = ((there - here)[:, None] == MOVES).all(2).argmax(1)
        done.append(environment.step(actions).done)
        assert np.array_equal(environment.positions, there)  # so no agent was stopped
    return done


def sum_of_costs(drawn, plan):
    """Return the sum, over agents, of the step after the last one in which the agent is not on its goal."""
    away = (plan.positions != drawn.goals).any(2)
    return sum(int(np.flatnonzero(agent).max()) + 1 for agent in away.T)


def test_nothing_costs_less():
    random = np.random.default_rng(3)
    conflicts = unsolved = 0
    for _ in range(40):
        drawn = draw_instance(random, 2, 4)
        plan = solve(drawn)
        cheapest = least(drawn, lambda on_the_way: on_the_way)
        if plan is None:
            unsolved += 1
            continue
        assert plan.sum_of_costs == cheapest
        conflicts += plan.nodes > 1
    assert conflicts > 5 and unsolved < 8


def test_crowds_cost_what_they_do_by_pymapfs_own_estimate():
    random = np.random.default_rng(5)
    for _ in range(25):
        drawn = draw_instance(random, 6, 6, 0.1)
        agents = named(cells(drawn.starts), cells(drawn.goals))
        plan = ConflictBasedSearch().solve(MAPFProblem(GridMap(drawn.obstacles), agents))
        assert solve(drawn, most_nodes=10_000).sum_of_costs == plan.sum_of_costs


def named(starts, goals):
    """Return agents of pymapf."""
    ends = enumerate(zip(starts, goals, strict=True))
    return [Agent(str(agent), start, goal) for agent, (start, goal) in ends]


def least(drawn, price):
    """Return the least cost of reaching all goals in our environment, by exhaustive search; None if impossible.

    A step costs price(number of agents that do not yet stay on their goals for good).
    """
    goals = cells(drawn.goals)

    @cache
    def after(at, actions):
        return cells(move(drawn.obstacles, np.array(at), np.array(actions))[0])

    waiting, seen = [(0, cells(drawn.starts), (False,) * len(goals))], set()
    while waiting:
        cost, at, settled = heapq.heappop(waiting)
        if all(settled):
            return cost
        if (at, settled) in seen:
            continue
        seen.add((at, settled))
        cost += price(settled.count(False))
        for actions in product(*([STAY] if stays else range(len(MOVES)) for stays in settled)):
            there = after(at, actions)
            may_settle = (
                {stays, cell == goal}
                for stays, cell, goal in zip(settled, there, goals, strict=True)
            )
            for then in product(*may_settle):
                heapq.heappush(waiting, (cost, there, then))
    return None


def cells(positions):
    return tuple((row, column) for row, column in positions.tolist())


def test_where_no_two_claim_a_cell_both_worlds_do_the_same():
    stopped = crowds = 0
    for obstacles, positions, actions in random_crowds(900):
        if claims(obstacles, positions, actions):
            continue
        found = ours(obstacles, positions, actions)
        assert found == theirs(obstacles, positions, actions), (obstacles, positions, actions)
        stopped += len(found[1])
        crowds += 1
    assert crowds > 300 and stopped > 300


def test_of_several_that_claim_a_cell_one_goes_here_and_none_there():
    """If the losers stay from the beginning, no two agents claim a cell, and both environments agree."""
    crowds = others = 0
    for obstacles, positions, actions in random_crowds(2500):
        claimed = claims(obstacles, positions, actions)
        if not claimed:
            continue
        case = obstacles, positions
        here, there = ours(*case, actions), theirs(*case, actions)
        losers = [agent for together in claimed for agent in together[1:]]
        assert here == and_stopped(theirs(*case, with_stays(actions, losers)), losers), case
        everyone = [agent for together in claimed for agent in together]
        assert there == and_stopped(ours(*case, with_stays(actions, everyone)), everyone), case
        crowds += 1
        others += here != there
    assert crowds > 200 and others > 100


def random_crowds(count):
    """Yield random obstacles, positions and actions."""
    random = np.random.default_rng(1)
    for _ in range(count):
        size = int(random.integers(2, 6))
        obstacles = random.random((size, size)) < random.random() * 0.4
        positions = random.permutation(np.argwhere(~obstacles))[: int(random.integers(1, 9))]
        if len(positions):
            yield obstacles, positions, random.integers(0, len(MOVES), len(positions))


def claims(obstacles, positions, actions):
    """Return the agents that want the same free cell, if there are several: their numbers, lowest first."""
    grid, found = GridMap(obstacles), {}
    for agent, (cell, action) in enumerate(zip(positions, actions, strict=True)):
        wanted = tuple((cell + MOVES[action]).tolist())
        if action != STAY and grid.is_free(wanted):
            found.setdefault(wanted, []).append(agent)
    return [together for together in found.values() if len(together) > 1]


def with_stays(actions, agents):
    changed = actions.copy()
    changed[agents] = STAY
    return changed


def and_stopped(outcome, agents):
    positions, stopped = outcome
    return positions, stopped | set(agents)


def ours(obstacles, positions, actions):
    """Return the positions after a step of our environment, and the agents that were stopped."""
    there, stopped = move(obstacles, positions, actions)
    return cells(there), set(np.flatnonzero(stopped).tolist())


def theirs(obstacles, positions, actions):
    """Return the same for pymapf's environment."""
    agents = named(cells(positions), cells(positions))
    names = [agent.name for agent in agents]
    environment = MAPFEnv(MAPFProblem(GridMap(obstacles), agents), reward="sparse")
    environment.reset()
    *_, infos = environment.step(dict(zip(names, actions.tolist(), strict=True)))
    stopped = {int(name) for name in names if infos[name]["blocked"] or infos[name]["collided"]}
    return tuple(environment.positions[name] for name in names), stopped
