"""Tests of the training loop: every option has an effect, tests leak nothing into training, metrics are true."""

import gzip
import inspect
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from conftest import HANGS_S, ForkedTrain, free_port, read_events, torchrun_environ

from node.accounting.metrics import BUCKETS
from node.dist import flat
from node.strategies import STRATEGIES, base
from node.tasks import cnn, fashion_mnist
from node.training.flags import make_parser
from node.training.shards import batch_samples

SMALL = ("--steps", "3", "--batch-size", "8")
# Runs node.train and measures it from inside: on a busy machine starting Python and reading a pipe take seconds.
TIMED = """
import json, sys, time
from node import train
has_torch = "torch" in sys.modules
train.main()
json.dump({"wall_s": time.perf_counter() - train.STARTED, "has_torch": has_torch}, sys.stderr)
"""
START_TO_END = ["start", "step", "step", "eval", "step", "eval", "end"]
# Flags that must change the trained parameters of a run on 2 ranks.
CHANGES = {
    "--dropout": ("0.5",),
    "--strategy": ("ddp",),
    "--set": ("H=2",),
    "--steps": ("4",),
    "--batch-size": ("9",),
    "--optimizer": ("sgd", "--lr", "0.002"),  # with adamw's learning rate
    "--lr": ("0.01",),
    "--momentum": ("0.5", "--optimizer", "sgd"),
    "--task": ("language",),
    "--task-set": ("dropout=0.4",),
    "--shard": ("dirichlet",),
    "--alpha": ("0.1", "--shard", "dirichlet"),
    "--accumulate": ("2",),
    "--weight-decay": ("0.3",),
    "--warmup-steps": ("2",),
    "--lr-schedule": ("cosine",),
    "--final-lr": ("0.5", "--lr-schedule", "cosine"),
    "--clip-norm": ("0.1",),
    "--autocast": ("bf16",),
    "--seed": ("2",),
}
# Flags that other tests cover.
TESTED_ELSEWHERE = {
    "--data-dir",  # every run here
    "--run-dir",  # every run here
    "--eval-every",  # test_strategies
    "--eval",  # below
    "--checkpoint-every",  # test_checkpoint
    "--resume",  # test_checkpoint
    "--threads",
    *("--node_rank", "--master_addr", "--master_port"),  # tests/unit/test_train_options.py
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--dry-run",  # tests/unit
    "--help",
    "-h",
}


def test_every_flag_has_a_test():
    flags = {f for action in make_parser()._actions for f in action.option_strings}
    assert flags == CHANGES.keys() | TESTED_ELSEWHERE


@pytest.mark.slow
def test_every_option_changes_the_result(run, run_once):
    base = {"": run_once(2, *SMALL).parameters[0]}
    for flag, values in CHANGES.items():
        base[flag] = run(2, *SMALL, flag, *values).parameters[0]
    # All differ, and so each differs from the run without the flag; momentum is compared with sgd.
    different = {tuple(parameters[:1000].tolist()) for parameters in base.values()}
    assert len(different) == len(base)


def test_the_same_flags_give_the_same_bits(run, run_once):
    assert torch.equal(run(2, *SMALL).parameters[0], run_once(2, *SMALL).parameters[0])


def test_dropout_stays_on_after_an_evaluation(run):
    """EXO Gym trains rank 0 in eval mode after its first evaluation."""
    tested = run(1, *SMALL, "--dropout", "0.5", "--eval-every", "1")
    untested = run(1, *SMALL, "--dropout", "0.5")
    assert torch.equal(tested.parameters[0], untested.parameters[0])
    assert len(tested.of("eval")) == 3


def test_ranks_drop_different_activations(run, data_dir, tmp_path):
    """If all pictures are the same, only dropout can make the losses of two ranks differ."""
    for path in data_dir.glob("*.gz"):
        data = gzip.decompress(path.read_bytes())
        header, size = (16, 784) if "images" in path.name else (8, 1)
        same = data[header : header + size] * ((len(data) - header) // size)
        (tmp_path / path.name).write_bytes(gzip.compress(data[:header] + same, 1))

    def losses(dropout):
        ranks = run(2, "--data-dir", str(tmp_path), "--steps", "1", "--dropout", dropout)
        return [ranks.of("step", rank)[0]["loss"] for rank in range(2)]

    assert losses("0")[0] == losses("0")[1]
    assert losses("0.5")[0] != losses("0.5")[1]


class Normalised(cnn.Cnn):
    """The network with a batch norm, whose buffers are read in tests but not in training."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm = torch.nn.BatchNorm2d(1)

    def forward(self, x):
        return super().forward(self.norm(x))


@pytest.mark.slow
def test_running_statistics_are_averaged_before_a_test_and_nothing_else_changes(run, monkeypatch):
    """EXO Gym never synchronises them, and freezes those of rank 0 at its first evaluation."""
    monkeypatch.setattr(cnn, "Cnn", Normalised)
    tested, untested = run(2, *SMALL, "--eval-every", "1"), run(2, *SMALL)
    assert torch.equal(tested.buffers[0], tested.buffers[1])
    assert torch.allclose(tested.buffers[0], untested.buffers[0])
    assert torch.equal(tested.parameters[0], untested.parameters[0])
    alone = run(1, *SMALL)
    assert not torch.allclose(alone.buffers[0], tested.buffers[0])
    # Two numbers on two ranks, after each of three steps.
    assert tested.end["sent_bytes"]["eval"] == 3 * 2 * 4
    assert untested.end["sent_bytes"]["eval"] == 2 * 4


def test_tests_after_the_training_are_of_the_average_over_all_ranks(run, monkeypatch):
    """If ranks differ, tests during training are of rank 0's own parameters. Batch norms' buffers are averaged, too."""
    monkeypatch.setattr(cnn, "Cnn", Normalised)
    flags = (*SMALL, "--strategy", "sparta", "--eval-every", "1")
    during, after = run(2, *flags), run(2, *flags, "--eval", "after")
    tested = [[line["test_loss"] for line in ranks.of("eval")] for ranks in (during, after)]
    assert [line["step"] for line in after.of("eval")] == [1, 2, 3]
    # The average after step 1, computed separately; after the last step all ranks have it in either case.
    mean = run(2, *SMALL[2:], "--steps", "1", "--strategy", "fedavg", "--lr", "0.002").of("eval")
    assert tested[1][0] == pytest.approx(mean[0]["test_loss"], rel=1e-5)
    assert tested[1][0] != pytest.approx(tested[0][0], rel=1e-5)
    assert tested[1][2] == pytest.approx(tested[0][2], rel=1e-5)
    # The tests change nothing of the training: neither a bit of the result nor a byte.
    assert torch.equal(during.parameters[0], after.parameters[0])
    assert [s["loss"] for s in during.of("step")] == [s["loss"] for s in after.of("step")]
    assert during.end["sent_bytes"]["train"] == after.end["sent_bytes"]["train"]
    # Two averages of all parameters and two statistics; checksums of both; the statistics at the end.
    whole = 4 * (len(after.parameters[0]) + 2)
    assert after.end["sent_bytes"]["eval"] == 2 * whole + 2 * 16 + 2 * 4


@pytest.mark.parametrize("strategy", ["ddp", "fedavg", "diloco", "localsgd"])
def test_what_all_ranks_have_is_tested_as_it_is(run, strategy):
    """Sixteen bytes per test suffice to find that out; the result equals that of tests during the training."""
    settings = ("--set", "H=2") if strategy != "ddp" else ()
    flags = (*SMALL, "--strategy", strategy, *settings, "--eval-every", "1")
    during, after = run(2, *flags), run(2, *flags, "--eval", "after")
    figures = [
        [(line["step"], line["test_loss"]) for line in ranks.of("eval")]
        for ranks in (during, after)
    ]
    assert figures[0] == figures[1]
    assert during.end["tested"] == after.end["tested"]
    assert after.end["sent_bytes"]["eval"] == 2 * 16


@pytest.mark.slow
def test_no_test_begins_before_all_ranks_have_done_their_last_step(run, monkeypatch):
    """With only local steps, nothing else would make rank 1 or rank 0 wait while the other computes."""
    evaluate = fashion_mnist.FashionMnist.evaluate

    def slowly(self, model, device):
        time.sleep(1)
        return evaluate(self, model, device)

    monkeypatch.setattr(fashion_mnist.FashionMnist, "evaluate", slowly)
    ranks = run(2, *SMALL, "--strategy", "sparta", "--eval-every", "1", "--eval", "after")
    began = [line["time"] - line["eval_s"] for line in ranks.of("eval")]
    assert min(began) > max(step["time"] for rank in range(2) for step in ranks.of("step", rank))
    # Rank 1 waits for the first test before it can average for the second; that does not count as comm.
    seconds = [ranks.of("end", rank)[0]["seconds"]["eval"] for rank in range(2)]
    assert seconds[0] > 3 and seconds[1] > 1


class Tabled(cnn.Cnn):
    """The network with constant buffers: a table that training reads, and a mask."""

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("table", torch.arange(28.0).sin())
        self.register_buffer("mask", torch.full((2,), torch.finfo(torch.float32).min))

    def forward(self, x):
        return super().forward(x * self.table)


def test_a_test_leaves_constant_buffers_as_they_are(run, monkeypatch):
    """Averaging could change them: (x + x + x) / 3 is not always x, and for the lowest number it is -inf."""
    monkeypatch.setattr(cnn, "Cnn", Tabled)
    tested, untested = run(3, *SMALL, "--eval-every", "1"), run(3, *SMALL)
    own = torch.cat([torch.arange(28.0).sin(), torch.full((2,), torch.finfo(torch.float32).min)])
    assert torch.equal(tested.buffers[0], own)
    assert [line["loss"] for line in tested.of("step")] == [
        line["loss"] for line in untested.of("step")
    ]
    assert torch.equal(tested.parameters[0], untested.parameters[0])
    assert tested.end["sent_bytes"]["eval"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_trains(run, strategy):
    ranks = run(2, "--steps", "8", "--batch-size", "8", "--strategy", strategy)
    assert torch.equal(ranks.parameters[0], ranks.parameters[1])
    assert ranks.end["final_loss"] < 2.5  # ln 10 = 2.3 at the start
    assert ranks.end["sent_bytes"]["train"] == sum(s["sent_bytes"] for s in ranks.of("step")) > 0


def test_a_strategy_of_ones_own_trains(run, tmp_path):
    """The example of node/strategies/base.py."""
    lines = inspect.getdoc(base).splitlines()
    start = lines.index("    from dataclasses import dataclass")
    own = [line for line in lines[start:] if not line or line.startswith("    ")]
    (tmp_path / "mine.py").write_text(textwrap.dedent("\n".join(own)))
    name = f"{tmp_path}/mine.py:NowAndThen"
    ranks = run(2, *SMALL, "--strategy", name, "--set", "every=2")
    assert torch.equal(ranks.parameters[0], ranks.parameters[1])
    assert [step["sent_bytes"] > 0 for step in ranks.of("step")] == [False, True, True]
    assert ranks.of("start")[0]["config"]["strategy_options"] == {"every": 2}


def test_a_strategy_knows_its_samples_when_it_is_set_up(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
            from dataclasses import dataclass

            from node.strategies.ddp import DDP


            @dataclass
            class Counting(DDP):
                def setup(self, model, optimizer, comm, seed):
                    assert self.samples == 768  # half of data_dir's
                    super().setup(model, optimizer, comm, seed)
        """)
    )
    ranks = run(2, *SMALL, "--strategy", f"{tmp_path}/mine.py:Counting")
    assert len(ranks.of("step")) == 3


def test_samples_are_shared_out_without_overlap_and_reordered_each_epoch():
    def epoch(start):
        steps = range(start, start + 5)
        return [batch_samples(100, 1, s, r, 3, 6).tolist() for s in steps for r in range(3)]

    first, second = epoch(1), epoch(6)
    flat = [sample for batch in first for sample in batch]
    assert len(set(flat)) == len(flat) == 90
    assert first != second
    together = [batch_samples(100, 1, 1, 0, 1, 18).tolist()]
    assert together[0] == [sample for batch in first[:3] for sample in batch]


def test_metrics_are_as_docs_formats_says(run):
    ranks = run(2, *SMALL, "--eval-every", "2")
    assert [e["event"] for e in ranks.events[0]] == START_TO_END
    assert [e["event"] for e in ranks.events[1]] == [e for e in START_TO_END if e != "eval"]
    common = {"event", "rank", "time"}
    start, step, test, end = (ranks.of(name)[0] for name in ("start", "step", "eval", "end"))
    assert start.keys() == common | {"config", "seconds", "link_bytes"}
    seconds = {"compute_s", "strategy_s", "comm_s"}
    assert step.keys() == common | {"step", "loss", "sent_bytes"} | seconds
    assert test.keys() == common | {"step", "test_loss", "test_accuracy", "eval_s"}
    figures = {"steps", "seconds", "sent_bytes", "final_loss", "test_accuracy", "tested"}
    assert end.keys() == common | figures | {"collectives", "link_bytes"}
    assert end["seconds"].keys() == {*BUCKETS, "total"}
    assert end["sent_bytes"].keys() == {"train", "eval", "control"}
    assert end["sent_bytes"]["control"] == 48
    assert ranks.of("end", 1)[0]["test_accuracy"] is None
    assert end["test_accuracy"] == ranks.of("eval")[-1]["test_accuracy"]
    assert end["final_loss"] == ranks.of("step")[-1]["loss"]


def test_the_books_are_complete(run):
    """Each collective has a line; the lines add up to the totals, and the totals to the bytes sent."""
    ranks = run(2, *SMALL, "--strategy", "ddp")
    beside_s = []
    for rank in range(2):
        lines = read_events(ranks.run_dir / f"collectives-rank{rank}.jsonl")
        purposes = {line["step"]: line["purpose"] for line in lines}
        assert purposes == {0: "control", 1: "train", 2: "train", 3: "train"}
        end = ranks.of("end", rank)[0]
        assert sum(one["count"] for one in end["collectives"]) == len(lines)
        sent = [peer["bytes"] for one in end["collectives"] for peer in one["to"].values()]
        assert sum(sent) == sum(end["sent_bytes"].values())
        waited_s = sum(one["waited_s"] for one in end["collectives"])
        beside_s.append(end["seconds"]["comm"] - waited_s)
        assert end["link_bytes"] == {}  # no link is shaped here
    # A rank that stands still between two looks at the clock, on a busy machine, shows that in one of them alone.
    assert min(beside_s) < 0.05 and all(s > -0.01 for s in beside_s), beside_s


# A test that takes no CPU time from a rank that waits for it.
SLOW_TEST = """\
import time
from dataclasses import dataclass
from node.tasks.fashion_mnist import FashionMnist

@dataclass
class SlowTest(FashionMnist):
    def evaluate(self, model, device):
        time.sleep(3)
        return {"test_loss": 1.0}
"""


# Each step packs for 0.1 s and has an optimizer step of 0.3 s; at the end it packs for 0.2 s. It leaves how long all of
# that took, which on a busy machine may be much longer.
SLOW_STRATEGY = """\
import time
from dataclasses import dataclass
from pathlib import Path
from node.strategies.ddp import DDP

@dataclass
class SlowPacking(DDP):
    def setup(self, model, optimizer, comm, seed):
        super().setup(model, optimizer, comm, seed)
        optimizer.register_step_pre_hook(lambda *_: time.sleep(0.3))
        self.rank, self.took_s = comm.rank, 0.0

    def step(self, step):
        began = time.monotonic()
        time.sleep(0.1)
        super().step(step)
        self.took_s += time.monotonic() - began

    def finish(self, step):
        began = time.monotonic()
        time.sleep(0.2)
        self.took_s += time.monotonic() - began
        Path(__file__).with_name(f"took-{self.rank}").write_text(str(self.took_s))
"""


def test_what_a_strategy_does_is_no_computing_and_its_optimizer_s_steps_are(run, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_STRATEGY)
    ranks = run(2, *SMALL, "--strategy", f"{tmp_path}/slow.py:SlowPacking")
    for rank in range(2):
        slow = ranks.of("end", rank)[0]["seconds"]
        took_s = float((tmp_path / f"took-{rank}").read_text())
        assert 3 * 0.1 + 0.2 <= slow["strategy"] < took_s - 3 * 0.3 + 0.45
        assert slow["compute"] >= 3 * 0.3
        steps = ranks.of("step", rank)
        assert sum(s["strategy_s"] for s in steps) == pytest.approx(slow["strategy"], abs=0.01)


def test_packing_in_a_backward_pass_is_no_computing(run, monkeypatch):
    """Each bucket is flattened while the gradients of others are still being computed."""
    flatten = flat.flatten

    def slowly(tensors):
        time.sleep(0.02)
        return flatten(tensors)

    monkeypatch.setattr(flat, "flatten", slowly)
    settings = ("--set", "bucket_mb=0.000001", "--set", "overlap=yes")
    ranks = run(2, *SMALL, "--strategy", "ddp", *settings)
    buckets = len(list(cnn.Cnn(0.0).parameters()))
    assert ranks.end["seconds"]["strategy"] >= 3 * buckets * 0.02


def test_waiting_for_another_rank_counts_as_comm(run, tmp_path):
    """In step 3, rank 1 waits for rank 0, which runs a test after step 2."""
    (tmp_path / "slow.py").write_text(SLOW_TEST)
    ranks = run(2, *SMALL, "--task", f"{tmp_path}/slow.py:SlowTest", "--eval-every", "2")
    assert ranks.of("step", 1)[2]["comm_s"] > 1
    # fedavg exchanges nothing before step 20.
    steps = run(2, *SMALL, "--strategy", "fedavg").of("step")
    assert [step["comm_s"] > 0 for step in steps] == [False, False, True]


def test_model_pt_is_the_trained_model(run_once):
    ranks = run_once(2, *SMALL)
    model = cnn.Cnn(0.0)
    model.load_state_dict(torch.load(ranks.run_dir / "model.pt"))
    saved = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(saved, ranks.parameters[0])
    assert saved.numel() == 1_199_882
    assert not list(ranks.run_dir.glob("*.part"))


def test_alone_without_environment_the_buckets_are_the_wall_time(data_dir, tmp_path):
    flags = ("--data-dir", data_dir, "--run-dir", tmp_path, "--steps", "40", "--batch-size", "32")
    # As a user starts it: in a new Python, without any torchrun variable.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GRADWIRE_")}
    command = [sys.executable, "-c", TIMED, *map(str, flags)]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 0, done.stderr
    lines, timed = done.stdout.splitlines(), json.loads(done.stderr)
    end = read_events(tmp_path / "metrics.jsonl")[-1]
    seconds = end["seconds"]
    # Not counted: the start of Python and of our own modules (not of torch), and leaving the process group.
    assert not timed["has_torch"]
    assert 0 <= timed["wall_s"] - seconds["total"] < 0.05 * timed["wall_s"] + 0.1
    assert sum(seconds[b] for b in BUCKETS) == pytest.approx(seconds["total"], rel=1e-6)
    assert seconds["other"] < 0.05 * seconds["total"]
    steps = [e for e in read_events(tmp_path / "metrics.jsonl") if e["event"] == "step"]
    assert sum(s["compute_s"] for s in steps) == pytest.approx(seconds["compute"], rel=0.01)
    assert lines[0].startswith("rank 0 of 1 on cpu: ")
    assert "step 40/40  loss " in done.stdout
    assert " done in " in lines[-1]


def test_by_hand_with_flags(data_dir, tmp_path):
    port = free_port()
    flags = ("--data-dir", data_dir, *SMALL, "--threads", "2")
    flags = (*flags, "--master-addr", "127.0.0.1", "--master-port", port, "--nnodes", 2)
    ranks = [
        ForkedTrain((*flags, "--node-rank", r, "--run-dir", tmp_path / str(r))) for r in range(2)
    ]
    for rank in ranks:
        _, err = rank.communicate()
        assert (rank.returncode, err) == (0, "")
    start = read_events(tmp_path / "1" / "metrics.jsonl")[0]
    assert start["config"]["ranks"]["master_port"] == port
    assert start["rank"] == start["config"]["ranks"]["rank"] == 1


def test_under_torchrun(data_dir, tmp_path):
    # Debian's torchrun requests libuv for every TCP store, but Debian's torch lacks it.
    store = f"--rdzv-backend=c10d --rdzv-endpoint={tmp_path}/store --rdzv-conf=store_type=file"
    flags = ("--data-dir", data_dir, "--run-dir", tmp_path, *SMALL)
    command = ["torchrun", *store.split(), "--nproc-per-node=2", "-m", "node.train", *flags]
    subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        check=True,
        capture_output=True,
        timeout=HANGS_S,
    )
    assert (tmp_path / "model.pt").is_file()
    assert {p.name for p in tmp_path.glob("metrics*.jsonl")} == {
        "metrics-rank0.jsonl",
        "metrics-rank1.jsonl",
    }


def test_a_killed_rank_ends_the_others_at_once_with_an_error(data_dir, tmp_path):
    """Gloo misses about one death in forty (docs/LOG.md); then the others end with the same error at the timeout."""
    for tries in range(3):
        folder = tmp_path / str(tries)
        folder.mkdir()
        took_s = kill_one_of_three(data_dir, folder)
        if took_s < TIMEOUT_S / 2:
            return
        assert took_s < TIMEOUT_S + 5
    pytest.fail("they ended, but not at once")


TIMEOUT_S = 15


def kill_one_of_three(data_dir, tmp_path):
    """Return how long the others took to end."""
    port = free_port()
    flags = ("--data-dir", data_dir, "--steps", "100000", "--batch-size", "8")
    error_file = tmp_path / "error.json"
    ranks = [
        ForkedTrain(
            flags,
            torchrun_environ(r, 3, port)
            | {"TORCHELASTIC_ERROR_FILE": str(error_file) if r == 0 else str(tmp_path / f"e{r}")}
            | {"GRADWIRE_TIMEOUT_S": str(TIMEOUT_S)},
        )
        for r in range(3)
    ]
    for line in ranks[0].stdout:
        if line.startswith("step"):
            break
    ranks[2].kill()
    killed = time.monotonic()
    for rank in ranks[:2]:
        _, err = rank.communicate()
        assert rank.returncode == 1
        assert "RuntimeError" in err
    took_s = time.monotonic() - killed
    ranks[2].communicate()
    assert "RuntimeError" in error_file.read_text()
    return took_s


def test_a_rank_that_never_comes_is_given_up_after_the_timeout(data_dir):
    environ = torchrun_environ(0, 2, free_port()) | {"GRADWIRE_TIMEOUT_S": "1"}
    rank = ForkedTrain(["--data-dir", data_dir], environ)
    _, err = rank.communicate()  # without that variable it would wait for half an hour
    assert rank.returncode == 1
    assert "1/2 clients joined" in err


def test_ranks_with_different_options_do_not_start(data_dir):
    port = free_port()
    ranks = [
        ForkedTrain(["--data-dir", data_dir, "--steps", 3 + r], torchrun_environ(r, 2, port))
        for r in range(2)
    ]
    for rank in ranks:
        _, err = rank.communicate()
        assert rank.returncode == 1
        assert "the ranks differ in their options" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data-dir", "/nowhere"], "no Fashion-MNIST in /nowhere or "),
        (["--batch-size", "60001"], "--batch-size"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(flags, message):
    process = ForkedTrain(flags)
    _, err = process.communicate()
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert message in err


def test_a_damaged_data_file_is_named(data_dir, tmp_path):
    for path in data_dir.glob("*.gz"):
        (tmp_path / path.name).write_bytes(path.read_bytes()[:200])
    process = ForkedTrain(["--data-dir", tmp_path])
    _, err = process.communicate()
    assert process.returncode == 2
    assert Path(fashion_mnist.TRAIN_IMAGES).name in err
    assert err.count("\n") == 1
