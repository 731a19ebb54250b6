"""Tests of IMPALA: V-trace against the paper's sums, the actors' experience, and the learner's updates."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from conftest import free_port
from test_actor_learner import Run, task_flags

from node.accounting.metrics import Clock
from node.actor_learner.learn import _Learning
from node.rl.vtrace import vtrace
from node.tasks.actor_learner import ActorPart
from node.tasks.impala import Impala
from node.training.config import parse_config
from node.transport.learner_socket import Arrival
from node.transport.messages import Experience

pytestmark = pytest.mark.computes
HOPPER = pytest.param(
    "Hopper-v5",
    marks=pytest.mark.skipif(
        not find_spec("mujoco"), reason="needs `python -m cluster.image --mujoco`"
    ),
)


def by_the_sum(log_ratios, rewards, discounts, values, last_values, rho_bar, c_bar):
    """Compute equation 1 of the paper, term by term."""
    steps, n = rewards.shape
    targets = np.zeros((steps, n))
    following = np.concatenate([values[1:], last_values[None]])
    for k in range(n):
        for s in range(steps):
            total = values[s, k]
            for t in range(s, steps):
                weight = math.prod(
                    discounts[i, k] * min(c_bar, math.exp(log_ratios[i, k])) for i in range(s, t)
                )
                rho = min(rho_bar, math.exp(log_ratios[t, k]))
                error = rewards[t, k] + discounts[t, k] * following[t, k] - values[t, k]
                total += weight * rho * error
            targets[s, k] = total
    return targets


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.0, 0.5), (math.inf, math.inf)])
def test_targets_are_the_papers_sums(rho_bar, c_bar):
    rng = np.random.default_rng(1)
    log_ratios, rewards, values = rng.normal(size=(3, 7, 4))
    discounts = np.where(rng.random((7, 4)) < 0.2, 0.0, 0.9)
    last = rng.normal(size=4)
    arrays = (log_ratios, rewards, discounts, values, last)
    found = vtrace(*map(torch.from_numpy, arrays), rho_bar=rho_bar, c_bar=c_bar)
    wanted = by_the_sum(*arrays, rho_bar, c_bar)
    assert np.allclose(found.targets.numpy(), wanted)
    after = np.concatenate([wanted[1:], last[None]])
    rho = np.minimum(rho_bar, np.exp(log_ratios))
    assert np.allclose(found.advantages.numpy(), rho * (rewards + discounts * after - values))


def test_with_the_policy_that_acted_targets_are_the_discounted_rewards():
    rewards, values = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[7.0], [-3.0], [5.0]])
    discounts = torch.tensor([[0.5], [0.5], [0.0]])
    last = torch.tensor([100.0])
    learnt = vtrace(torch.zeros(3, 1), rewards, discounts, values, last, rho_bar=1.0, c_bar=1.0)
    assert learnt.targets.flatten().tolist() == [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4]


def unrolls(task, count, seed=1):
    torch.manual_seed(seed)
    model = task.make_model()
    actor = task.make_actor(model, ActorPart(range(3), 3, seed))
    found = []
    while len(found) < count:
        found += actor.step()
    return model, actor, found


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", HOPPER])
def test_pieces_follow_one_another_without_a_gap(env):
    task = Impala(env=env, unroll=5)
    model, actor, found = unrolls(task, 12)
    assert actor.steps == 12 * 5 * 3
    for before, after in zip(found, found[1:], strict=False):
        assert np.array_equal(before.arrays["obs"][-1], after.arrays["obs"][0])
        assert (np.diff(before.arrays["made_at_s"]) >= 0).all()
    for one in found:
        assert one.env_steps == 15
        obs = torch.from_numpy(one.arrays["obs"][:-1])
        actions = torch.from_numpy(one.arrays["actions"])
        log_probs = model.distribution(obs).log_prob(actions)
        assert torch.allclose(log_probs, torch.from_numpy(one.arrays["log_probs"]), atol=1e-5)


def test_episodes_are_counted_where_they_end():
    _, _, found = unrolls(Impala(unroll=30), 10)
    ended = sum(one.arrays["done"].sum() for one in found)
    assert ended == sum(one.figures["episodes"] for one in found) > 0
    told = [one.figures["episode_length"] for one in found if one.figures["episodes"]]
    assert all(8 <= length <= 200 for length in told)  # the pole falls, as nobody balances it


def learner_of(task, model, batch_size=2):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return task.make_learner(model, optimizer, batch_size, 0.0, seed=1)


def test_pieces_are_learnt_once_oldest_first_and_no_more_wait_than_said():
    task = Impala(unroll=4, queue=3, actors=3)
    model, _, found = unrolls(task, 3)
    learner = learner_of(task, model)
    states = []
    for one in found:
        learner.check(one)
        states.append((learner.is_ready, learner.room, learner.updates_before))
        learner.add(one)
    assert states == [(False, 3, 0), (False, 2, 0), (True, 1, 1)]
    assert learner.room == 0
    learner.update(1)
    assert not learner.is_ready and learner.room == 2
    assert learner.steps_learnt == 2 * 4 * 3


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_what_is_no_piece_of_its_task_is_refused(env):
    task = Impala(env=env, unroll=4, actors=3)
    model, _, found = unrolls(task, 1)
    learner = learner_of(task, model)
    arrays = dict(found[0].arrays)
    wrong = {
        "obs": arrays["obs"][1:],
        "rewards": arrays["rewards"] * np.float32(np.inf),
        "done": arrays["done"][:, :2],
        "log_probs": arrays["log_probs"].astype(np.float64),
        "actions": arrays["actions"][:2] if env == "Pendulum-v1" else arrays["actions"] + 2,
    }
    for name, array in wrong.items():
        with pytest.raises(ValueError, match=r"whose|actions"):
            learner.check(Experience(arrays | {name: array}, {}))


def test_correction_changes_what_older_policies_teach_and_nothing_else():
    losses = {}
    for moved in (False, True):
        for correction in ("vtrace", "none"):
            task = Impala(unroll=6, correction=correction)
            model, _, found = unrolls(task, 2)
            if moved:
                with torch.no_grad():
                    model.actor[-1].weight.add_(torch.randn_like(model.actor[-1].weight) * 0.5)
            learner = learner_of(task, model)
            for one in found:
                learner.add(one)
            torch.manual_seed(3)
            losses[moved, correction] = learner.update(1)
    assert losses[False, "vtrace"] == pytest.approx(losses[False, "none"], rel=1e-4)
    assert losses[True, "vtrace"] != pytest.approx(losses[True, "none"], rel=1e-2)


def test_no_piece_waits_until_it_is_too_old_to_be_learnt():
    """The policies that acted are two updates behind when pieces arrive, four of which arrive per update."""
    options = {"unroll": 4, "actors": 3, "queue": 64, "max_staleness": 5}
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    environ["MASTER_PORT"] = str(free_port())
    words = ["--task", "impala", "--batch-size", "2", *task_flags(options)]
    config = parse_config(words, environ)
    task = Impala(**config.task_options)
    model, _, found = unrolls(task, 1)
    learning = _Learning(config, task, model, Clock(0.0))
    learner, ages = learning._learner, []
    for made in range(20):
        version = np.full(4, max(0, made - 2))
        for _ in range(4):
            piece = Experience(dict(found[0].arrays) | {"version": version}, found[0].figures)
            learning._take_one(Arrival(1, piece, 1), made)
        ages += [made - int(piece.arrays["version"].min()) for piece in list(learner._waiting)[:2]]
        learner.update(made + 1)
    learning._socket.close()
    figures = learning._figures(20, {})
    assert max(ages) == 5
    assert 0 < figures.rejected < figures.pieces
    assert figures.staleness_updates["max"] == 5


@pytest.mark.slow
def test_it_is_learnt_by_processes_that_talk(tmp_path):
    """The learning rate decays to 0, as in the paper, so that a good policy stays good.

    Which update an actor's weights have depends on timing, so no two runs are alike; occasionally a run forgets
    for some updates what it had learnt.
    """
    words = ["--task", "impala", "--steps", 300, "--lr", 0.003, "--seed", 3, "--run-dir", tmp_path]
    words += ["--lr-schedule", "linear", "--final-lr", 0, "--eval-every", 100]
    run = Run(tmp_path, words + task_flags({"eval_episodes": 20}))
    end = run.finish()
    before, *after = (one["test_return"] for one in run.events(0, "eval"))
    experience = end["experience"]
    assert before < 20  # with this seed
    losses = [one["loss"] for one in run.events(0, "step")]
    assert max(after) > 3 * before, (before, after, losses, experience)
    assert experience["env_steps"] >= 300 * 2 * 20 * 8
    # Each piece is learnt once; those that still wait at the end are not learnt.
    assert 0.9 < experience["replay_ratio"] <= 1
    assert experience["mean_steps"] == 160
