"""Tests of multi-agent path finding: each rule by hand, and all rules against a slow, simple reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from node.mapf.acting import Actors, exploration
from node.mapf.conflicts import move
from node.mapf.curriculum import LATEST, Curriculum, Goal
from node.mapf.environment import Environment
from node.mapf.learning import td_loss
from node.mapf.network import SIZES, Network
from node.mapf.observation import Observer, who_hears_whom
from node.mapf.world import MOVES, Instance, components, distances, draw_instance
from node.replay.buffer import Buffer, Draw
from node.tasks.mapf import MOST_TAKEN

pytestmark = pytest.mark.computes
STAY, UP, DOWN, LEFT, RIGHT = range(5)


def grid(text):
    """Parse a map: `#` is an obstacle, a digit the cell of the agent with that number."""
    rows = text.split()
    cells = {c: (r, k) for r, row in enumerate(rows) for k, c in enumerate(row) if c.isdigit()}
    obstacles = np.array([[c == "#" for c in row] for row in rows])
    return obstacles, np.array([cells[name] for name in sorted(cells)])


def after(text, *actions):
    obstacles, positions = grid(text)
    wanted, stopped = move(obstacles, positions, np.array(actions))
    return [tuple(cell) for cell in wanted.tolist()], np.flatnonzero(stopped).tolist()


@pytest.mark.parametrize(
    ("text", "actions", "cells", "stopped"),
    [
        ("0.", [RIGHT], [(0, 1)], []),
        ("0.", [UP], [(0, 0)], [0]),  # off the map
        ("0.", [LEFT], [(0, 0)], [0]),
        ("0#", [RIGHT], [(0, 0)], [0]),  # an obstacle
        ("01", [RIGHT, LEFT], [(0, 0), (0, 1)], [0, 1]),  # they would swap places
        ("10", [LEFT, RIGHT], [(0, 1), (0, 0)], [0, 1]),
        ("01.", [RIGHT, RIGHT], [(0, 1), (0, 2)], []),  # one follows the other
        ("01#", [RIGHT, RIGHT], [(0, 0), (0, 1)], [0, 1]),  # it follows an agent that was stopped
        ("012", [RIGHT, RIGHT, RIGHT], [(0, 0), (0, 1), (0, 2)], [0, 1, 2]),
        # of two, the agent with the lower number moves
        ("0.1", [RIGHT, LEFT], [(0, 1), (0, 2)], [1]),
        ("1.0", [LEFT, RIGHT], [(0, 1), (0, 0)], [1]),
        ("01", [RIGHT, STAY], [(0, 0), (0, 1)], [0]),  # an agent stays there
        # 2 loses to 0, so 3, which wanted 2's cell, must stay, too.
        ("0.23 ####", [RIGHT, LEFT, LEFT], [(0, 1), (0, 2), (0, 3)], [1, 2]),
        # Agents in a circle can all move.
        ("01 32", [RIGHT, DOWN, LEFT, UP], [(0, 1), (1, 1), (1, 0), (0, 0)], []),
    ],
)
def test_who_may_move(text, actions, cells, stopped):
    assert after(text, *actions) == (cells, stopped)


def slowly(obstacles, positions, actions):
    """Apply the same rules, agent by agent."""
    cells = [tuple(cell) for cell in positions.tolist()]
    wanted = [tuple((np.array(c) + MOVES[a]).tolist()) for c, a in zip(cells, actions, strict=True)]
    stopped = set()
    moving = {n for n, action in enumerate(actions) if action}

    def stop(agent):
        wanted[agent] = cells[agent]
        stopped.add(agent)
        moving.discard(agent)

    for agent in sorted(moving):
        row, column = wanted[agent]
        inside = 0 <= row < len(obstacles) and 0 <= column < len(obstacles[0])
        if not inside or obstacles[row][column]:
            stop(agent)
    for one in sorted(moving):
        for other in sorted(moving):
            if one < other and wanted[one] == cells[other] and wanted[other] == cells[one]:
                stop(one)
                stop(other)
    while True:
        crowded = [c for c in set(wanted) if wanted.count(c) > 1]
        if not crowded:
            return wanted, sorted(stopped)
        for cell in crowded:
            there = [n for n, want in enumerate(wanted) if want == cell]
            goes = min(there) if all(n in moving for n in there) else None
            for agent in there:
                if agent != goes and agent in moving:
                    stop(agent)


def test_random_crowds_move_as_the_reference_says():
    random = np.random.default_rng(1)
    conflicts = 0
    for _ in range(600):
        size = int(random.integers(2, 6))
        obstacles = random.random((size, size)) < random.random() * 0.4
        free = random.permutation(np.argwhere(~obstacles))
        agents = free[: int(random.integers(1, 9))]
        if not len(agents):
            continue
        actions = random.integers(0, 5, len(agents))
        wanted, stopped = move(obstacles, agents, actions)
        expected = slowly(obstacles, agents, actions)
        found = [tuple(c) for c in wanted.tolist()], np.flatnonzero(stopped).tolist()
        assert found == expected, (obstacles, agents, actions)
        assert len(set(found[0])) == len(agents)
        conflicts += len(found[1])
    assert conflicts > 300


def test_rewards_are_dhcs():
    obstacles, starts = grid("0.1 ...")
    goals = np.array([[0, 1], [0, 2]])
    environment = Environment(Instance(obstacles, starts, goals), most_steps=3)
    # 0 moves to its goal, and 1 wants the same cell: the lower number moves.
    outcome = environment.step(np.array([RIGHT, LEFT]))
    assert outcome.done  # 1 was stopped on its own goal
    assert outcome.rewards.tolist() == [3.0, 3.0]
    environment = Environment(Instance(obstacles, starts, goals), most_steps=3)
    seen = [
        environment.step(np.array(actions)) for actions in ([STAY, STAY], [DOWN, LEFT], [STAY, UP])
    ]
    tenths = [[round(float(r), 3) for r in outcome.rewards] for outcome in seen]
    assert tenths == [[-0.075, 0.0], [-0.075, -0.075], [-0.075, -0.5]]
    assert [(o.done, o.truncated) for o in seen] == [(False, False), (False, False), (False, True)]


def test_an_agent_sees_others_obstacles_and_shorter_ways():
    obstacles, starts = grid("0#. ..1 ...")
    goals = np.array([[0, 2], [2, 0]])
    seen = Observer(Instance(obstacles, starts, goals), radius=1).observe(starts)
    assert seen.shape == (2, 6, 3, 3)
    first = (
        seen[0].astype(int).tolist()
    )  # in the corner, so row and column 0 of its field of view are outside
    assert first[0] == [[0, 0, 0], [0, 0, 0], [0, 0, 0]]  # 1 is two columns away
    assert first[1] == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    up, down, left, right = first[2:]
    assert down == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]  # around the obstacle
    assert right == [[0, 0, 0], [0, 0, 0], [0, 1, 1]]
    assert up == left == [[0] * 3] * 3
    assert not seen[:, 0, 1, 1].any()  # no agent sees itself


def test_distances_are_those_of_a_walk():
    random = np.random.default_rng(2)
    for _ in range(20):
        instance = draw_instance(random, 1, 7)
        far = distances(instance.obstacles, instance.goals[0])
        for cell in np.argwhere(~instance.obstacles):
            near = [
                far[tuple(there)]
                for there in cell + MOVES[1:]
                if (there >= 0).all() and (there < 7).all() and not instance.obstacles[tuple(there)]
            ]
            reached = [n for n in near if n >= 0]
            here = far[tuple(cell)]
            assert here == 0 or here == (min(reached) + 1 if reached else -1)


def test_who_hears_whom():
    positions = np.array([[0, 0], [0, 4], [0, 5], [1, 0], [2, 0]])
    hears = who_hears_whom(positions)
    assert hears.diagonal().all()
    assert np.flatnonzero(hears[0]).tolist() == [
        0,
        3,
        4,
    ]  # 1 is in sight, but not among the nearest
    assert np.flatnonzero(hears[1]).tolist() == [0, 1, 2]
    assert not hears[0, 2]  # out of sight


@pytest.mark.parametrize(("agents", "size"), [(1, 10), (2, 10), (8, 10), (16, 40)])
def test_instances_can_be_solved_one_by_one(agents, size):
    random = np.random.default_rng(3)
    for _ in range(10):
        instance = draw_instance(random, agents, size)
        cells = np.concatenate([instance.starts, instance.goals]).tolist()
        assert len({tuple(cell) for cell in cells}) == 2 * agents
        parts = [{tuple(c) for c in part.tolist()} for part in components(instance.obstacles)]
        for start, goal in zip(instance.starts.tolist(), instance.goals.tolist(), strict=True):
            assert start != goal
            assert any(tuple(start) in part and tuple(goal) in part for part in parts)


def test_a_map_that_cannot_hold_its_agents_is_said():
    with pytest.raises(ValueError, match="no map of 2 x 2 holds 3 agents"):
        draw_instance(np.random.default_rng(1), 3, 2)


@pytest.mark.parametrize("size", [2, 3, 5, 10])
def test_as_many_agents_as_options_allow_are_found_a_place(size):
    random = np.random.default_rng(4)
    agents = int(MOST_TAKEN * size**2 / 2)
    for _ in range(20):
        assert len(draw_instance(random, agents, size).starts) == agents


def test_the_full_network_is_as_large_as_dhcs():
    parameters = sum(p.numel() for p in Network(SIZES["full"]).parameters())
    assert parameters == pytest.approx(2.05e6, rel=0.01)


def test_messages_change_those_who_hear_them_and_nobody_else():
    torch.manual_seed(1)
    network = Network(SIZES["small"])
    obs = torch.rand(1, 3, 6, 9, 9)
    hidden = network.first_memory(1, 3)
    alone = torch.eye(3, dtype=torch.bool)[None]
    hears = alone.clone()
    hears[0, 0, 1] = True  # 0 hears 1
    deaf, heard = (network.step(obs, hidden, mask)[0] for mask in (alone, hears))
    assert not torch.allclose(deaf[0], heard[0])
    assert torch.equal(deaf[1:], heard[1:])
    obs[0, 2] += 1  # no agent hears 2
    assert torch.allclose(network.step(obs, hidden, hears)[0, :2], heard[:2], atol=1e-6)
    assert network.values(heard).shape == (3, 5)


def test_a_curriculum_that_no_step_leads_to_is_refused():
    for agents, size in ((2, 18), (0, 10), (2, 5)):
        with pytest.raises(ValueError, match="in steps of 5 rows"):
            Goal((1, 10), agents, size)


def test_harder_settings_open_when_easier_ones_are_mastered():
    curriculum = Curriculum(Goal((1, 10), agents=2, size=15))
    for _ in range(LATEST - 1):
        curriculum.add((1, 10), solved=True)
    assert curriculum.settings == [(1, 10)]
    curriculum.add((1, 10), solved=True)
    assert curriculum.settings == [(1, 10), (1, 15), (2, 10)]
    for setting in ((1, 15), (2, 10)):
        for n in range(LATEST):
            curriculum.add(setting, solved=n % 10 > 0)  # 90 %
    assert curriculum.settings == [(1, 10), (1, 15), (2, 10), (2, 15)]
    assert not curriculum.is_done
    for n in range(LATEST):
        curriculum.add((2, 15), solved=n % 9 > 0)
    assert not curriculum.is_done and curriculum.success((2, 15)) < 0.9
    for _ in range(LATEST):
        curriculum.add((2, 15), solved=True)
    assert curriculum.is_done
    for _ in range(LATEST):
        curriculum.add((1, 15), solved=False)
    assert not curriculum.is_done  # all numbers of agents must be mastered


def test_exploration_is_a_ladder():
    assert [exploration(n, 3) for n in range(3)] == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert exploration(0, 1) == 0.4


def some_actors(network, epsilons=(1.0, 1.0, 1.0), seed=1, **changes):
    """Return actors with 1, 2 and 3 agents in turn, on maps of 6 x 6 with few obstacles."""
    count = iter(range(10**9))

    def draw(random):
        agents = 1 + next(count) % 3
        return (agents, 6), draw_instance(random, agents, 6, 0.1)

    usual = {
        "any_explores": True,
        "first_agent_only": False,
        "n_steps": 2,
        "gamma": 0.9,
        "most_steps": 20,
        "seed": seed,
    }
    return Actors(network, draw, epsilons, **usual | changes)


@pytest.mark.parametrize("any_explores", [True, False])
def test_one_agent_of_an_episode_explores(any_explores):
    network = Network(SIZES["small"])
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)  # so the best action is to stay
    actors = some_actors(network, any_explores=any_explores)
    moved = [one.episode.actions.any(0) for one in finished(actors, 60)]
    three = [tuple(agents) for agents in moved if len(agents) == 3]
    assert {sum(agents) for agents in three} == {1}
    assert len(set(three)) == (3 if any_explores else 1)


def finished(actors, number):
    found = []
    while len(found) < number:
        found += actors.step()
    return found


def first_unsolved(actors):
    """Return the first episode whose time was up."""
    while True:
        for one in actors.step():
            if not one.solved:
                return one.episode


def sequence(episode, begin, end):
    one = np.ones(1, np.float32)
    return Draw(np.zeros(1, int), [episode], np.array([begin]), np.array([end]), one)


@pytest.mark.parametrize("first_only", [True, False])
def test_a_learner_sees_what_the_actor_saw(first_only):
    """With the actor's own network the learner computes the same errors, from the first step and from a later one."""
    torch.manual_seed(1)
    network = Network(SIZES["small"])
    actors = some_actors(network, first_agent_only=first_only, any_explores=not first_only)
    options = {"n_steps": 2, "gamma": 0.9, "first_agent_only": first_only}
    over = [one for one in finished(actors, 120) if one.solved]
    assert over
    for one in over[:8]:
        episode = one.episode
        whole = td_loss(
            network, network, sequence(episode, 0, episode.length), burn_in=0, **options
        )
        assert np.allclose(whole.errors[0], episode.errors, atol=1e-5)
        if episode.length > 4:
            late = sequence(episode, 3, episode.length)
            within = td_loss(network, network, late, burn_in=2, **options)
            assert np.allclose(
                within.errors[0], episode.errors[3:], atol=2e-3
            )  # the memory is stored as float16


def test_nothing_is_learnt_of_the_steps_before_a_sequence():
    """The gradient equals that of a sequence that begins with the memory which those steps lead to."""
    torch.manual_seed(5)
    network = Network(SIZES["small"])
    episode = first_unsolved(some_actors(network))
    options = {"n_steps": 2, "gamma": 0.9, "first_agent_only": False}
    exact = episode.hidden.astype(np.float32)
    for step in range(2, 5):  # float16 is not exact
        obs, hears = (torch.from_numpy(a[step - 1][None]) for a in (episode.obs, episode.hears))
        with torch.no_grad():
            memory = network.step(obs.float(), torch.from_numpy(exact[step - 1][None]), hears)
        exact[step] = memory[0].numpy()
    own = replace(episode, hidden=exact)
    gradients = []
    for burn_in in (3, 0):
        network.zero_grad()
        td_loss(network, network, sequence(own, 4, 9), burn_in=burn_in, **options).loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().max() > 1e-3


def test_episodes_of_a_batch_do_not_touch_each_other():
    torch.manual_seed(2)
    network, target = Network(SIZES["small"]), Network(SIZES["small"])
    buffer = Buffer(capacity=40, most_steps=20, sequence=4, seed=1)
    for one in finished(some_actors(network), 20):
        buffer.add(one.episode)
    options = {"burn_in": 2, "n_steps": 2, "gamma": 0.9, "first_agent_only": True}
    draw = buffer.draw(16)
    together = td_loss(network, target, draw, **options)
    for n in range(16):
        alone = td_loss(
            network, target, sequence(draw.episodes[n], draw.begins[n], draw.ends[n]), **options
        )
        assert np.allclose(alone.errors[0], together.errors[n], atol=1e-5)
    assert together.loss.requires_grad


def test_time_that_is_up_is_no_end():
    """After a timeout, the value of the next state counts; after an end it does not."""
    torch.manual_seed(3)
    network = Network(SIZES["small"])
    late = first_unsolved(some_actors(network))
    options = {"burn_in": 0, "n_steps": 1, "gamma": 0.9, "first_agent_only": True}
    last = sequence(late, late.length - 1, late.length)
    going_on = td_loss(network, network, last, **options).errors[0]
    ended = td_loss(
        network,
        network,
        sequence(replace(late, ended=np.array(True)), late.length - 1, late.length),
        **options,
    )
    assert not np.allclose(going_on, ended.errors[0])


def test_a_batch_can_be_learnt():
    torch.manual_seed(4)
    network, target = Network(SIZES["small"]), Network(SIZES["small"])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    buffer = Buffer(capacity=40, most_steps=20, sequence=4, seed=1)
    for one in finished(some_actors(network), 10):
        buffer.add(one.episode)
    batch = buffer.draw(8)
    losses = []
    for _ in range(60):
        learnt = td_loss(
            network, target, batch, burn_in=2, n_steps=2, gamma=0.9, first_agent_only=False
        )
        losses.append(float(learnt.loss))
        optimizer.zero_grad()
        learnt.loss.backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0], losses
