"""Tests of a learner and its actors: real processes, messages over loopback, killed actors."""

import json
import multiprocessing
import time

import numpy as np
import pytest
import torch
import zmq
from conftest import ForkedTrain, free_port, read_events, torchrun_environ
from safetensors.numpy import save

from node.accounting.metrics import Clock
from node.actor_learner.act import _Acting, part_of
from node.actor_learner.silence import Silence
from node.actor_learner.staleness import require_times
from node.base.options import OptionError
from node.mapf.acting import exploration
from node.mapf.network import SIZES, Network
from node.mapf.play import Played, play
from node.tasks.actor_learner import ActorPart
from node.tasks.mapf import Mapf
from node.training.config import parse_config
from node.transport import learner_socket
from node.transport.actor_socket import ActorSocket
from node.transport.messages import Experience
from node.transport.sockets import endpoint

# Short sequences: while the learner makes an update, its actors act, so that all of them take as long as it does.
SHORT = {
    "learn_after": 200,
    "most_steps": 16,
    "actors": 2,
    "pull_every": 20,
    "eval_instances": 4,
    "eval_most_steps": 8,
    "sequence": 2,
    "burn_in": 1,
}


def flags(folder, steps, **options):
    words = ["--task", "mapf", "--steps", steps, "--batch-size", 4, "--run-dir", folder]
    return words + task_flags(SHORT | options)


def task_flags(options):
    return [word for key, value in options.items() for word in ("--task-set", f"{key}={value}")]


class Run:
    """A learner and two actors, started with these flags of node.train."""

    def __init__(self, folder, words, silence_s=60):
        self.folder = folder
        self.silence_s = silence_s
        self.flags = words
        self.port = free_port()
        self.size = 3
        self.processes = {rank: self.start(rank) for rank in range(self.size)}

    def start(self, rank, life=0):
        environ = torchrun_environ(rank, self.size, self.port)
        environ |= {
            "TORCHELASTIC_RESTART_COUNT": str(life),
            "GRADWIRE_SILENCE_S": str(self.silence_s),
        }
        return ForkedTrain(self.flags, environ)

    def events(self, rank, kind):
        path = self.folder / f"metrics-rank{rank}.jsonl"
        return [line for line in read_events(path) if line["event"] == kind]

    def wait_for(self, rank, kind, true=bool):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            path = self.folder / f"metrics-rank{rank}.jsonl"
            if path.exists() and true(self.events(rank, kind)):
                return
            time.sleep(0.05)
        raise AssertionError(f"rank {rank} wrote no {kind}")

    def finish(self, ranks=None):
        for rank in range(self.size) if ranks is None else ranks:
            out, err = self.processes[rank].communicate()
            assert self.processes[rank].returncode == 0, out + err
        return self.events(0, "end")[0]


@pytest.mark.parametrize(("weights", "seed"), [("f32", 1), ("delta", -1)])
def test_actors_act_and_the_learner_learns_from_what_they_did(tmp_path, weights, seed):
    run = Run(tmp_path, [*flags(tmp_path, 20, weights=weights), "--seed", seed])
    end = run.finish()
    experience = end["experience"]
    assert end["steps"] == 20
    assert [line["step"] for line in run.events(0, "step")] == list(range(1, 21))
    assert [line["step"] for line in run.events(0, "eval")] == [0, 20]
    assert {"test_success", "cbs_success"} <= end["tested"].keys()
    assert experience["env_steps"] >= SHORT["learn_after"]
    assert experience["malformed"] == 0 and experience["duplicates"] == 0
    assert experience["staleness_updates"]["max"] <= 20
    assert set(experience["actors"]) == {"1", "2"}
    for rank, actor in experience["actors"].items():
        acted = run.events(int(rank), "end")[0]["acted"]
        assert acted["env_steps"] >= actor["steps"] > 0
        assert actor["connections"] == acted["connections"] == actor["lives"] == 1
        assert actor["step_interval_s"] == acted["step_interval_s"] > 0
        assert 0 <= actor["window_full_share"] == acted["window_full_share"] <= 1
    # The bytes that learner and actors report for each other agree.
    sent = {one["purpose"]: one for one in run.events(1, "end")[0]["collectives"]}
    assert sent["experience"]["to"]["0"]["bytes"] >= experience["actors"]["1"]["received_bytes"]
    assert end["sent_bytes"]["weights"] > 0
    model = Network(SIZES["small"])
    model.load_state_dict(torch.load(tmp_path / "model.pt"))


def test_a_learner_says_how_long_it_lacked_experience_and_an_actor_how_long_weights(
    tmp_path, monkeypatch
):
    """There are 13 episodes or more in 200 steps, and each of two processes takes 0.4 s or more to hand one over."""
    hand_over = ActorSocket.hand_over

    def late(self, experience):
        time.sleep(0.4)
        hand_over(self, experience)

    monkeypatch.setattr(ActorSocket, "hand_over", late)
    run = Run(tmp_path, flags(tmp_path, 20))
    seconds = run.finish()["seconds"]
    first, *others = run.events(0, "step")
    assert 2.0 < first["waiting_s"] <= first["comm_s"]
    # From then on it draws from the replay, and waits for nobody.
    assert {line["waiting_s"] for line in others} == {0.0}
    assert seconds["waiting"] >= first["waiting_s"]
    messages_s = sum(line["comm_s"] - line["waiting_s"] for line in (first, *others))
    assert messages_s <= seconds["comm"] + 1e-6
    for rank in (1, 2):
        assert run.events(rank, "end")[0]["seconds"]["waiting"] > 0


@pytest.mark.slow
def test_an_actor_that_is_killed_costs_nobody_else_anything_and_comes_back(tmp_path):
    run = Run(tmp_path, flags(tmp_path, 200))  # many times as long as a start takes
    run.wait_for(2, "start")
    run.wait_for(0, "step", lambda lines: len(lines) > 5)
    run.processes[2].kill()
    run.processes[2].communicate()
    done = len(run.events(0, "step"))
    run.wait_for(0, "step", lambda lines: len(lines) > done + 5)  # the learner does not wait
    run.processes[2] = run.start(2, life=1)
    experience = run.finish()["experience"]
    assert experience["actors"]["2"]["lives"] == 2
    assert experience["actors"]["2"]["connections"] == 2
    assert len(run.events(2, "start")) == 2  # the metrics of both lives are in one file
    assert experience["actors"]["1"]["lives"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["f32", "delta"])
def test_in_a_chain_the_second_actor_gets_weights_from_the_first(tmp_path, monkeypatch, weights):
    """It does so once it knows of the first actor; until then it gets them from the learner."""
    # otherwise it takes as long as 80 updates until the first actor is known
    monkeypatch.setattr(learner_socket, "LOOK_FOR_PEERS_S", 0.1)
    run = Run(tmp_path, flags(tmp_path, 80, broadcast="chain", weights=weights, pull_every=0))
    experience = run.finish()["experience"]
    assert (experience["broadcast"], experience["pull_every"]) == ("chain", 0)
    came = {rank: run.events(rank, "weights") for rank in (1, 2)}
    assert {line["source"] for line in came[1]} == {0}
    assert came[2][-1]["source"] == 1
    assert {line["source"] for line in came[2]} <= {0, 1}
    for rank, lines in came.items():
        versions = [line["version"] for line in lines]
        assert versions == sorted(set(versions)) == [line["step"] for line in lines]
        assert all(line["received_at_s"] >= line["published_at_s"] for line in lines)
        assert any(line["waited"] for line in lines)
        assert experience["actors"][str(rank)]["pulled_bytes"] > 0
    sent = {one["purpose"]: one for one in run.events(1, "end")[0]["collectives"]}
    assert sent["weights"]["to"]["2"]["bytes"] >= 10_000
    assert experience["malformed"] == 0


def test_what_the_learner_sends_between_two_updates_counts_as_the_later_ones(tmp_path):
    """With pull_every=0, most weights are sent then."""
    run = Run(tmp_path, flags(tmp_path, 20, pull_every=0))
    end = run.finish()
    sent = sum(line["sent_bytes"] for line in run.events(0, "step"))
    assert end["sent_bytes"]["weights"] <= sent <= sum(end["sent_bytes"].values())


def test_experience_that_is_too_old_is_rejected_and_the_bias_is_told(tmp_path):
    run = Run(tmp_path, flags(tmp_path, 40, max_staleness=1, publish_every=1, pull_every=100_000))
    experience = run.finish()["experience"]
    assert experience["rejected"] > 0
    assert experience["rejected"] < experience["pieces"]
    assert experience["mean_steps_kept"] > 0
    assert experience["staleness_updates"]["max"] <= 1  # rejected experience is not learnt


@pytest.mark.slow
def test_actors_that_are_too_far_behind_wait_where_that_is_asked_for(tmp_path):
    options = {"max_staleness": 3, "publish_every": 1, "pull_every": 100_000, "when_stale": "pace"}
    run = Run(tmp_path, flags(tmp_path, 40, **options))
    assert run.finish()["experience"]["rejected"] == 0
    # They ask for weights when the learner tells them to, not at their interval.
    assert run.events(1, "end")[0]["steps"] > 0


def test_a_learner_goes_on_from_its_checkpoint(tmp_path):
    one, other = tmp_path / "first", tmp_path / "then"
    # a decaying schedule could not be resumed with more steps
    constant = ("--lr-schedule", "constant")
    Run(one, [*flags(one, 12), *constant, "--checkpoint-every", "5"]).finish()
    assert [path.name for path in one.glob("checkpoint*")] == ["checkpoint-rank0-step10.pt"]
    then = Run(other, [*flags(other, 15), *constant, "--resume", one])
    end = then.finish()
    assert end["steps"] == 15
    assert [line["step"] for line in then.events(0, "step")] == list(range(11, 16))
    words = [*flags(tmp_path / "not", 15, gamma=0.5), *constant, "--resume", one]
    refused = ForkedTrain(words, torchrun_environ(0, 3, free_port()))
    _, err = refused.communicate()
    assert refused.returncode == 2
    assert "was made with task_options" in err


@pytest.mark.slow
def test_a_test_may_take_longer_than_ranks_may_be_silent(tmp_path, monkeypatch):
    """The learner answers nobody while it tests, so no actor has weights to act by."""
    evaluate = Mapf.evaluate

    def slow(self, model, device):
        time.sleep(9)
        return evaluate(self, model, device)

    monkeypatch.setattr(Mapf, "evaluate", slow)
    assert Run(tmp_path, flags(tmp_path, 10), silence_s=8).finish()["steps"] == 10


def test_silence_is_counted_while_the_learner_listens_and_hardly_while_it_is_busy(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    silence = Silence(60.0)

    def pass_s(*seconds):
        for each in seconds:
            now_s[0] += each
            silence.listened()

    pass_s(1000.0, *[0.5] * 90)  # 15 s of the long one count
    assert not silence.is_too_long
    pass_s(0.5)
    assert silence.is_too_long
    silence.end()
    pass_s(*[10.0] * 6)  # updates from a replay, without waiting
    assert not silence.is_too_long
    pass_s(1.0)
    assert silence.is_too_long


def test_without_actors_the_learner_ends_with_one_line(tmp_path):
    environ = torchrun_environ(0, 2, free_port()) | {"GRADWIRE_SILENCE_S": "1"}
    alone = ForkedTrain(flags(tmp_path, 10, learn_after=100), environ)
    _, err = alone.communicate()
    assert alone.returncode == 1
    assert "no experience that could be learnt came from any actor for 1 s" in err


def test_without_a_learner_an_actor_ends_with_one_line(tmp_path):
    environ = torchrun_environ(1, 2, free_port()) | {"GRADWIRE_SILENCE_S": "1"}
    alone = ForkedTrain(flags(tmp_path, 10), environ)
    _, err = alone.communicate()
    assert alone.returncode == 1
    assert "there was no connection to the learner at 127.0.0.1" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "ddp"], "--strategy: under --task mapf it follows from the learner"),
        (["--set", "H=3"], "--set: options of strategies"),
        (["--task-set", "network=huge"], "unknown value of --task-set network"),
        (["--task-set", "agents=60"], "agents=60 do not fit on 10 x 10 cells"),
        (["--task-set", "map_size=12"], "in steps of 5 rows"),
        (["--task-set", "capacity=10"], "learn_after=2000"),
        (
            ["--batch-size", "192", *task_flags({"capacity": 9, "learn_after": 9})],
            "capacity=9: its",
        ),
        (["--task-set", "preset=large"], "unknown preset 'large'"),
        (["--task-set", "broadcast=ring"], "unknown value of --task-set broadcast"),
        (["--task-set", "broadcast=tree", "--task-set", "pull_every=9"], "pull_every=9: in a tree"),
        (["--task-set", "weights=f16"], "unknown value of --task-set weights"),
        (["--task-set", "max_staleness=4"], "max_staleness=4 is less than publish_every=5"),
    ],
)
def test_bad_input_is_one_line(words, said):
    environ = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "1"}
    with pytest.raises(OptionError) as refused:
        parse_config(["--task", "mapf", *words], environ)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_actors_is_refused():
    with pytest.raises(OptionError, match="no actors"):
        parse_config(["--task", "mapf"], {})


def test_the_full_preset_has_dhcs_sizes():
    environ = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "1"}
    config = parse_config(["--task", "mapf", "--task-set", "preset=full"], environ)
    assert (config.batch_size, config.lr, config.steps) == (192, 1e-4, 600_000)
    sizes = {"capacity": 2048, "most_steps": 256, "sequence": 16, "map_size": 40, "agents": 2}
    sizes |= {
        "target_every": 2000,
        "learn_after": 50_000,
        "n_steps": 2,
        "all_agents": False,
        "average": 0.0,
    }
    assert sizes.items() <= config.task_options.items()
    assert config.essential_ranks == (0,)
    assert parse_config([], {}).essential_ranks is None


@pytest.mark.computes
def test_messages_that_are_lost_are_not_heard_in_training_nor_in_tests():
    task = Mapf(agents=3, first_agents=3, comm_loss=1.0, all_agents=True, most_steps=4)
    torch.manual_seed(1)
    model = task.make_model()
    actor = task.make_actor(model, ActorPart(range(2), 2, seed=1))
    found = []
    while len(found) < 4:
        found += actor.step()
    for experience in found:
        alone = np.broadcast_to(np.eye(3, dtype=bool), experience.arrays["hears"].shape)
        assert np.array_equal(experience.arrays["hears"], alone)
    # An agent that hears nobody acts as if nobody sent anything: the communication rounds change nothing.
    instances = task.held_out()[:8]
    deaf = play(model, instances, 16, comm_loss=1.0)
    model.communicate = lambda hidden, hears: hidden
    assert play(model, instances, 16) == deaf


def test_a_test_can_also_drop_other_shares_of_messages(monkeypatch):
    def play(model, instances, most_steps, *, comm_loss, seed):
        return [Played(solved=n >= 8 * comm_loss, steps=3) for n in range(len(instances))]

    monkeypatch.setattr("node.mapf.play.play", play)
    task = Mapf(eval_instances=8, eval_comm_loss_also="0.25,0.5,1", optimum=False)
    assert task.evaluate(None, None) == {
        "test_success": 1.0,
        "test_steps": 3.0,
        "test_success_at_0.25": 0.75,
        "test_success_at_0.5": 0.5,
        "test_success_at_1": 0.0,
    }


def episodes(task, count=3):
    torch.manual_seed(1)
    model = task.make_model()
    actor = task.make_actor(model, ActorPart(range(4), 4, seed=1))
    found = []
    while len(found) < count:
        found += actor.step()
    learner = task.make_learner(model, torch.optim.SGD(model.parameters(), 0.1), 4, 0.0, 1)
    return learner, found


@pytest.mark.computes
@pytest.mark.parametrize("average", [0.0, 0.75])
def test_what_is_tested_is_an_average_of_what_was_learnt_and_goes_on_after_a_restart(average):
    task = Mapf(most_steps=8, average=average)
    learner, found = episodes(task)
    for episode in found:
        learner.add(episode)
    expected = None
    for update in range(1, 4):
        learner.update(update)
        now = [one.detach().clone() for one in learner._network.parameters()]
        expected = now if expected is None else mixed(expected, now, average)
        assert all(map(torch.allclose, learner.tested.parameters(), expected))
    again, _ = episodes(task)
    again.load_state(learner.state())
    assert all(map(torch.equal, again.tested.parameters(), learner.tested.parameters()))


def mixed(before, now, kept):
    return [kept * a + (1 - kept) * b for a, b in zip(before, now, strict=True)]


@pytest.mark.computes
def test_the_learner_refuses_what_is_no_episode_of_its_task():
    learner, found = episodes(Mapf(most_steps=8))
    good = found[0]
    learner.check(good)
    arrays = dict(good.arrays)
    for figures in ({"agents": 9}, {"agents": 0, "size": 0}, {"size": 7}):
        with pytest.raises(ValueError, match="agents on"):
            learner.check(Experience(arrays, dict(good.figures) | figures))
    wrong = {
        "obs": arrays["obs"][1:],
        "hidden": arrays["hidden"][:, :, :-1],
        "actions": arrays["actions"] + np.int8(5),
        "rewards": arrays["rewards"] * np.float32(np.nan),
        "hears": np.zeros((2, 2), bool),
    }
    for name, array in wrong.items():
        with pytest.raises(ValueError, match=r"whose|actions"):
            learner.check(Experience(arrays | {name: array}, good.figures))


@pytest.mark.computes
def test_who_was_ready_stays_so_when_episodes_become_short():
    """This happens as the policy improves: the ring then holds fewer steps than learn_after."""
    task = Mapf(most_steps=8, capacity=6, learn_after=40)
    learner, found = episodes(task, 12)
    for one in found[:6]:
        learner.add(one)
    assert learner.is_ready
    short = dict(found[6].arrays)
    cut = {"obs": 2, "hears": 2} | dict.fromkeys(
        ("hidden", "actions", "rewards", "errors", "version", "made_at_s"), 1
    )
    for name, steps in cut.items():
        short[name] = short[name][:steps]
    for _ in range(6):
        learner.add(Experience(short, found[6].figures))
    assert learner._buffer.steps == 6
    assert learner.is_ready


@pytest.mark.parametrize("shape", [(), (1, 1), (0,)])
def test_experience_without_a_row_of_versions_is_refused(shape):
    arrays = {"version": np.zeros(shape, np.int64), "made_at_s": np.ones(shape)}
    with pytest.raises(ValueError, match="experience"):
        require_times(Experience(arrays, {}), 3)


@pytest.mark.slow
def test_messages_that_are_none_cost_the_learner_nothing(tmp_path):
    """As far as the learner can tell, they come from ranks of the run."""
    run = Run(tmp_path, flags(tmp_path, 60))
    context = zmq.Context()
    with context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(endpoint(("127.0.0.1", run.port)))
        shapes = [(1,), (), (1, 1)]
        arrays = [{"version": np.zeros(s, int), "made_at_s": np.ones(s)} for s in shapes]
        figures = {"agents": 1, "size": 10}
        usual = {"kind": "experience", "rank": 2, "life": 1, "shapes": {}, "figures": figures}
        for number, nothing in enumerate(arrays, 1):
            head = json.dumps(usual | {"number": number}).encode()
            stranger.send_multipart([head, save(nothing)])
        stranger.send_multipart([json.dumps(usual | {"kind": "bye", "figures": 7}).encode()])
        experience = run.finish()["experience"]
    context.term()
    assert experience["malformed"] >= 3
    assert set(experience["actors"]) == {"1", "2"}


RANKS = {"WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "1"}


def part(rank, *words, restarts=0, version=0, actors=8):
    environ = RANKS | {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(restarts)}
    return part_of(parse_config(["--task", "mapf", *words], environ), actors, version)


def test_every_rank_has_actors_that_explore_much_and_actors_that_decide():
    parts = [part(rank) for rank in (1, 2)]
    assert sorted(number for one in parts for number in one.numbers) == list(range(16))
    for one in parts:
        deciding = [exploration(n, one.actors) <= exploration(8, 16) for n in one.numbers]
        assert (len(deciding), sum(deciding)) == (8, 4)


def acting_without_learner(task):
    environ = RANKS | {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    config = parse_config(["--task", "mapf"], environ)
    return _Acting(config, task, task.make_model(), Clock(time.perf_counter()))


def acting_until_the_window_is_full():
    acting = acting_without_learner(Mapf(window=1))
    acting._have = 0
    while not acting._socket.is_full:
        acting._turn()
    return acting


@pytest.mark.computes
def test_the_time_with_a_full_window_is_counted():
    acting = acting_until_the_window_is_full()
    assert acting._told()["window_full_share"] == acting._clock.read()["waiting"] == 0
    begun_at = time.monotonic()
    for _ in range(5):
        acting._turn()  # waits
    waited_s = time.monotonic() - begun_at
    acting._step()
    told = acting._told()
    begun_at, ended_at = acting._acting_s
    acting._close(told)
    assert waited_s >= 0.2
    assert 0.2 <= acting._clock.read()["waiting"] <= waited_s
    assert told["window_full_share"] == pytest.approx(waited_s / (ended_at - begun_at), rel=0.1)


@pytest.mark.computes
def test_waiting_with_a_full_window_after_the_last_step_is_not_counted():
    """It lasts as long as the learner's last test, and no weights are on their way."""
    acting = acting_until_the_window_is_full()
    for _ in range(5):
        acting._turn()  # waits
    told = acting._told()
    acting._close(told)
    assert told["window_full_share"] == 0


@pytest.mark.computes
def test_the_time_between_steps_is_counted_from_the_first_one():
    acting = acting_without_learner(Mapf())
    time.sleep(0.5)  # until the learner sends weights
    assert "step_interval_s" not in acting._told()
    begun_at = time.monotonic()
    for _ in range(5):
        acting._step()
    took_s = time.monotonic() - begun_at
    time.sleep(0.5)  # until the learner has finished
    told = acting._told()
    acting._close(told)
    assert 0.5 * took_s / 5 < told["step_interval_s"] <= took_s / 5


def test_no_process_draws_what_another_or_an_earlier_one_drew():
    seeds = [
        part(rank, restarts=restarts, version=version).seed
        for rank in (1, 2)
        for restarts in (0, 1)
        for version in (0, 5, 10)
    ]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.computes
@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1])
def test_actors_draw_by_any_seed(seed):
    task = Mapf()
    task.make_actor(task.make_model(), part(1, "--seed", str(seed)))


def learning(task):
    model = task.make_model()
    return model, torch.optim.SGD(model.parameters(), 0.1)


@pytest.mark.computes
def test_tests_on_maps_that_cannot_hold_the_agents_are_refused_before_anything_is_learnt():
    task = Mapf(eval_density=0.99)
    with pytest.raises(OptionError, match=r"^eval_density=0.99: no map of 10 x 10 holds 2 agents"):
        task.make_learner(*learning(task), 4, 0.0, 1)


def test_actors_of_a_resumed_run_begin_other_episodes(tmp_path, monkeypatch):
    """At update 0 of the first run, and at the version of the first weights of the next."""
    one, other = tmp_path / "first", tmp_path / "then"
    seeds = multiprocessing.get_context("fork").SimpleQueue()
    make_actor = Mapf.make_actor

    def told(self, model, share):
        seeds.put(share.seed)
        return make_actor(self, model, share)

    monkeypatch.setattr(Mapf, "make_actor", told)
    constant = ("--lr-schedule", "constant")
    Run(one, [*flags(one, 12), *constant, "--checkpoint-every", "5"]).finish()
    first = drain(seeds)
    Run(other, [*flags(other, 15), *constant, "--resume", one]).finish()
    # Those of the resumed run begin like the first ones, and again with the first weights.
    assert sorted(drain(seeds) - first) == [seed + 10 * 104_729 for seed in sorted(first)]


def drain(queue):
    found = set()
    while not queue.empty():
        found.add(queue.get())
    return found


@pytest.mark.computes
def test_harder_settings_reach_the_actors():
    task = Mapf()
    actor = task.make_actor(task.make_model(), ActorPart(range(4), 4, seed=1))
    actor.heed({"settings": [[2, 10]]})
    found = []
    for _ in range(200):
        found += actor.step()
    assert {one.figures["agents"] for one in found[8:]} == {2}
