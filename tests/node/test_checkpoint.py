"""A run that was stopped goes on as if it had not been, bit for bit, under every strategy."""

import random
import shutil

import pytest
import torch
from conftest import free_port, torchrun_environ
from test_loop import node_train

from node.freeze import freeze, thaw
from node.options import OptionError
from node.strategies import STRATEGIES
from node.strategies.base import Strategy

COMMON = ("--batch-size", "8", "--steps", "7", "--dropout", "0.3", "--momentum", "0.9")
SGD = ("--optimizer", "sgd", "--lr", "0.01")
# With something under way, or half a round done, after step 3.
SETTINGS = {
    "ddp": "bucket_mb=1 overlap=yes",
    "fedavg": "H=2 server=adam weights=samples",
    "diloco": "H=2",
    "streaming-diloco": "H=4 fragments=2 tau=1 codec=int8",
    "eager-diloco": "H=2 codec=bf16",
    "sparta": "p=0.1 selector=partition",
    "sparta-diloco": "H=2 p=0.1",
    "demo": "topk=8",
    "powersgd": "rank=2",
    "gossip": "graph=exponential push_sum=yes",
}
RANKS = 2


def flags_of(strategy):
    settings = [word for setting in SETTINGS[strategy].split() for word in ("--set", setting)]
    return ("--strategy", strategy, *settings, *COMMON, *SGD)


def losses(ranks, rank=0):
    return {step["step"]: step["loss"] for step in ranks.of("step", rank)}


def test_every_strategy_is_tried():
    assert SETTINGS.keys() == STRATEGIES.keys()


@pytest.mark.parametrize("strategy", SETTINGS)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(run, strategy):
    """Attacks all that may be forgotten: momenta, residuals, fragments under way, dropout's state."""
    flags = flags_of(strategy)
    whole = run(RANKS, *flags)
    first = run(RANKS, *flags, "--checkpoint-every", "3")
    assert {p.name for p in first.run_dir.glob("checkpoint-*")} == {
        f"checkpoint-rank{rank}-step6.pt" for rank in range(RANKS)
    }
    stopped = run(RANKS, *flags, "--checkpoint-every", "5")  # its last one is of step 5
    resumed = run(RANKS, *flags, "--resume", str(stopped.run_dir))
    for rank in range(RANKS):
        # Writing changes nothing, and nothing is missing after reading.
        assert losses(first, rank) == losses(whole, rank)
        assert losses(resumed, rank) == {n: losses(whole, rank)[n] for n in (6, 7)}
        assert torch.equal(first.parameters[rank], whole.parameters[rank])
        assert torch.equal(resumed.parameters[rank], whole.parameters[rank])
    assert resumed.end["tested"] == whole.end["tested"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, data_dir):
    """The folder of a run of one rank with a checkpoint of step 2."""
    folder = tmp_path_factory.mktemp("stopped")
    flags = ("--data-dir", data_dir, "--run-dir", folder, *SHORT, "--checkpoint-every", "2")
    process = node_train(*map(str, flags))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return folder


SHORT = ("--steps", "3", "--batch-size", "8")
FILE = "checkpoint-rank0-step2.pt"


def refusal(*flags):
    process = node_train(*map(str, flags))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 1, err
    return err


def cut(data):
    return data[: len(data) // 2]


def flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


@pytest.mark.parametrize("harm", [cut, flip])
def test_a_damaged_checkpoint_is_one_line(stopped, data_dir, tmp_path, harm):
    (tmp_path / FILE).write_bytes(harm((stopped / FILE).read_bytes()))
    err = refusal("--data-dir", data_dir, *SHORT, "--resume", tmp_path)
    assert f"{FILE} is damaged, or no checkpoint" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--lr", "0.1"), "was made with lr 0.002, not 0.1"),
        (("--strategy", "ddp"), 'was made with strategy "fedavg", not "ddp"'),
        (("--schedule", "cosine"), 'was made with schedule "constant", not "cosine"'),
        (("--steps", "2"), "is of step 2 already"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(stopped, data_dir, flags, message):
    err = refusal("--data-dir", data_dir, *SHORT, "--resume", stopped, *flags)
    assert message in err


def test_no_checkpoint_is_one_line(data_dir, tmp_path):
    err = refusal("--data-dir", data_dir, *SHORT, "--resume", tmp_path)
    assert f"--resume {tmp_path}: no checkpoint-rank0-step….pt there" in err


def test_what_was_fetched_from_nodes_is_found_and_more_steps_may_follow(run, stopped, tmp_path):
    folder = tmp_path / "fetched/files/node1"
    folder.mkdir(parents=True)
    shutil.copy(stopped / FILE, folder / FILE)
    flags = ("--steps", "5", "--batch-size", "8")
    resumed = run(1, *flags, "--resume", str(tmp_path / "fetched"))
    assert losses(resumed) == {n: losses(run(1, *flags))[n] for n in (3, 4, 5)}
    assert resumed.end["seconds"]["checkpoint"] > 0


def test_ranks_go_on_from_the_latest_step_that_all_have(run):
    """One was killed before it had written its next."""
    flags = flags_of("fedavg")
    whole, ahead = run(2, *flags), run(2, *flags, "--checkpoint-every", "4")
    behind = run(2, *flags, "--checkpoint-every", "3")
    for path in behind.run_dir.glob("checkpoint-rank*"):
        shutil.copy(path, ahead.run_dir)
    (ahead.run_dir / "checkpoint-rank1-step6.pt").unlink()
    resumed = run(2, *flags, "--resume", str(ahead.run_dir))
    assert losses(resumed) == {n: losses(whole)[n] for n in (5, 6, 7)}


def test_ranks_that_have_no_step_in_common_say_so(run):
    flags = flags_of("fedavg")
    ahead = run(2, *flags, "--checkpoint-every", "4").run_dir
    behind = run(2, *flags, "--checkpoint-every", "3").run_dir
    shutil.move(behind / "checkpoint-rank1-step6.pt", ahead)
    (ahead / "checkpoint-rank1-step4.pt").unlink()
    with pytest.raises(AssertionError, match="no step that all ranks have"):
        run(2, *flags, "--resume", str(ahead))


def test_a_rank_that_is_killed_leaves_a_checkpoint_that_goes_on(run, data_dir, tmp_path):
    flags = ("--data-dir", str(data_dir), "--run-dir", str(tmp_path), *flags_of("fedavg")[2:])
    flags = (*flags, "--steps", "100000", "--checkpoint-every", "5")
    port = free_port()
    ranks = [node_train(*flags, environ=torchrun_environ(r, 2, port)) for r in range(2)]
    for line in ranks[0].stdout:
        if line.startswith("step"):
            break
    ranks[1].kill()
    for rank in ranks:
        rank.communicate(timeout=60)
    steps = {int(p.stem.rpartition("step")[2]) for p in tmp_path.glob("checkpoint-rank0-*.pt")}
    assert steps
    until = str(max(steps) + 2)
    flags = (*flags_of("fedavg"), "--steps", until)
    resumed = run(2, *flags, "--resume", str(tmp_path))
    whole = losses(run(2, *flags))
    assert losses(resumed) == {n: whole[n] for n in losses(resumed)}
    assert max(losses(resumed)) == int(until)


class Own(Strategy):
    """With all kinds of things to remember."""

    __dataclass_fields__ = {}  # noqa: RUF012

    def setup(self, *args):
        self.model = torch.nn.Linear(2, 2)
        self.comm = self.optimizer = object()
        self.draw = random.Random(1)
        self.generator = torch.Generator().manual_seed(1)
        self.second = torch.nn.Linear(1, 1)
        self.seen = {"tensor": torch.zeros(2), "first": self.model.weight}
        self.itself = self


def test_a_strategy_of_ones_own_need_not_know_of_checkpoints():
    one, other = Own(), Own()
    for own in (one, other):
        own.setup()
    one.outer, one.rounds = torch.ones(3), (1, [None, "x"], frozenset({4}))
    one.seen["tensor"] += 5
    expected = one.draw.random(), torch.rand(1, generator=one.generator)
    one.setup()
    one.outer, one.rounds = torch.ones(3), (1, [None, "x"], frozenset({4}))
    one.seen["tensor"] += 5
    thaw(other, freeze(one))
    assert (other.draw.random(), torch.rand(1, generator=other.generator)) == expected
    assert other.rounds == one.rounds
    assert torch.equal(other.outer, one.outer)
    assert torch.equal(other.second.weight, one.second.weight)
    assert other.seen["tensor"].tolist() == [5, 5]
    assert other.seen["first"] is other.model.weight
    assert other.itself is other
    one.wait = lambda: one.outer
    with pytest.raises(OptionError, match="the strategy's wait is a function"):
        freeze(one)
