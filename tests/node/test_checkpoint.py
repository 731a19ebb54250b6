"""Tests that a stopped run continues as if it had not been stopped, bit for bit, with every strategy."""

import random
import shutil
from collections import defaultdict
from dataclasses import replace
from enum import IntEnum

import numpy
import pytest
import torch
from conftest import ForkedTrain, free_port, read_events, torchrun_environ

from node.accounting.metrics import Clock, Metrics
from node.base.options import OptionError
from node.dist.comm import Comm
from node.dist.rank_env import RankEnv
from node.strategies import STRATEGIES
from node.strategies.base import Strategy
from node.strategies.gossip import Gossip
from node.strategies.streaming_diloco import StreamingDiLoCo
from node.tasks.dataset_task import DatasetTask
from node.training.checkpoint import (
    find_for_resume,
    read,
    require_same,
    settings_of,
    write_whole,
)
from node.training.config import parse_config
from node.training.strategy_state import freeze, thaw
from protocol.metrics import Start

# After step 3, each has something in flight, half a round done, or an order half used up.
SETTINGS = {
    "ddp": "bucket_mb=0.005 overlap=yes",
    "fedavg": "H=2 server=adam weights=samples fraction=0.7 mu=0.1",
    "localsgd": "H=2 start_after=2",
    "diloco": "H=2",
    "streaming-diloco": "H=4 fragments=2 tau=1 codec=int8",
    "eager-diloco": "H=2 codec=bf16",
    "sparta": "p=0.2 selector=partition",
    "sparta-diloco": "H=2 p=0.1",
    "demo": "topk=8",
    "powersgd": "rank=2",
    "gossip": "graph=exponential push_sum=yes",
}


def test_every_strategy_is_tried():
    assert SETTINGS.keys() == STRATEGIES.keys()


@pytest.mark.parametrize("strategy", SETTINGS)
def test_stopped_within_a_round_it_goes_on_bit_for_bit(tiny, strategy):
    """Finds any state that a strategy may lose: momenta, residuals, fragments in flight."""

    def seen(stop_after):
        ranks = tiny(
            *(3, strategy, SETTINGS[strategy]),
            steps=7,
            momentum=0.9,
            own_samples=[8, 9, 7],
            dtype="float32",
            stop_after=stop_after,
        )
        return [(rank["losses"], rank["parameters"], rank["outer"]) for rank in ranks]

    whole = seen(None)
    assert [seen(step) == whole for step in (3, 4)] == [True, True]


def flags_of(strategy, *more):
    settings = [word for setting in SETTINGS[strategy].split() for word in ("--set", setting)]
    return ("--strategy", strategy, *settings, *SHORT, "--steps", "7", "--dropout", "0.3", *more)


def losses(ranks, rank=0):
    return {step["step"]: step["loss"] for step in ranks.of("step", rank)}


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(run):
    """The loop loses no state either: dropout, the learning rate, the order of the samples."""
    settings = ("--set", "H=6", "--set", "fragments=2", "--set", "codec=int8")
    flags = ("--strategy", "streaming-diloco", *settings, "--batch-size", "8", "--steps", "10")
    flags = (*flags, "--dropout", "0.3", "--lr-schedule", "cosine", "--shard", "dirichlet")
    whole = run(2, *flags, "--accumulate", "2")
    stopped = run(2, *flags, "--accumulate", "2", "--checkpoint-every", "4")
    names = {path.name for path in stopped.run_dir.glob("checkpoint-*")}
    assert names == {f"checkpoint-rank{rank}-step8.pt" for rank in range(2)}
    resumed = run(2, *flags, "--accumulate", "2", "--resume", str(stopped.run_dir))
    for rank in range(2):
        # Writing changes nothing, and reading restores everything.
        assert losses(stopped, rank) == losses(whole, rank)
        assert losses(resumed, rank) == {n: losses(whole, rank)[n] for n in (9, 10)}
        assert torch.equal(resumed.parameters[rank], whole.parameters[rank])
    assert resumed.end["tested"] == whole.end["tested"]
    assert stopped.end["seconds"]["checkpoint"] > 0 == whole.end["seconds"]["checkpoint"]


@pytest.mark.slow
def test_what_is_still_to_be_tested_is_in_a_checkpoint(run):
    flags = (
        "--strategy",
        "sparta",
        *SHORT[:2],
        "--steps",
        "6",
        "--eval",
        "after",
        "--eval-every",
        "2",
    )
    stopped = run(2, *flags, "--checkpoint-every", "3")
    resumed = run(2, *flags, "--resume", str(stopped.run_dir))
    tests = [
        [(line["step"], line["test_loss"]) for line in ranks.of("eval")]
        for ranks in (stopped, resumed)
    ]
    assert tests[0] == tests[1]
    assert [step for step, _ in tests[0]] == [2, 4, 6]


def test_what_a_checkpoint_lets_ranks_send_counts_as_the_next_steps(run):
    """An int8 average is in flight at step 3; writing the checkpoint starts its second half."""
    flags = ("--strategy", "streaming-diloco", "--batch-size", "8", "--steps", "4")
    settings = [f"--set={word}" for word in ("H=4", "fragments=2", "tau=1", "codec=int8")]
    whole = run(2, *flags, *settings)
    stopped = run(2, *flags, *settings, "--checkpoint-every", "3")
    sent = [[step["sent_bytes"] for step in ranks.of("step")] for ranks in (whole, stopped)]
    assert sent[0] == sent[1]
    assert sum(sent[1]) == stopped.end["sent_bytes"]["train"]


def test_streaming_diloco_may_start_anew_between_sending_a_fragment_and_applying_it():
    """As a run does that continues with another number of ranks: the strategy's state is dropped."""
    model = torch.nn.Linear(3, 2)
    strategy = StreamingDiLoCo(H=4, fragments=2, tau=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    strategy.setup(model, optimizer, Comm(RankEnv(), Clock(0.0)), 1)
    for step in range(4, 9):  # the fragment that is due at 4 was to be sent at 3
        for parameter in model.parameters():  # this process must not compute: it forks
            parameter.grad = torch.ones_like(parameter)
        strategy.step(step)
    strategy.finish(8)
    assert torch.equal(strategy.flat_parameters(), strategy.outer)


DRAWS = """
import random
import numpy
import torch
from torch import nn
from torch.utils.data import TensorDataset


class Flipped(TensorDataset):
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return (x if DRAWN < 0.5 else -x), y


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)


def flipped():
    x = torch.randn(300, 4)
    return Line(), Flipped(x[:256], x[:256].sum(1)), TensorDataset(x[256:], x[256:].sum(1))
"""


def flipped(folder, drawn="random.random()", data="torch.randn(300, 4)"):
    """Return flags of a task whose samples are flipped at random."""
    folder.mkdir(exist_ok=True)
    text = DRAWS.replace("DRAWN", drawn).replace("torch.randn(300, 4)", data)
    (folder / "mine.py").write_text(text)
    return ("--task", f"{folder}/mine.py:flipped", "--steps", "6", "--batch-size", "8")


@pytest.mark.parametrize("drawn", ["random.random()", "numpy.random.rand()"])
def test_a_task_that_draws_by_itself_goes_on_bit_for_bit(run, tmp_path, drawn):
    """It uses a generator that is not torch's, as many tasks with augmentation do."""
    flags = flipped(tmp_path, drawn)
    whole = run(2, *flags)
    stopped = run(2, *flags, "--checkpoint-every", "4")
    resumed = run(2, *flags, "--resume", str(stopped.run_dir))
    for rank in range(2):
        assert losses(resumed, rank) == {n: losses(whole, rank)[n] for n in (5, 6)}


def test_a_run_does_not_go_on_with_other_data(run, tmp_path):
    """The datasets have the same size and the same classes, none."""
    stopped = run(2, *flipped(tmp_path / "one"), "--checkpoint-every", "4")
    flags = flipped(tmp_path / "other", data="torch.ones(300, 4)")
    with pytest.raises(AssertionError, match='was made with data_digest "[0-9a-f]+", not "'):
        run(2, *flags, "--resume", str(stopped.run_dir))


def test_a_checkpoint_of_an_earlier_version_goes_on(run, stopped, tmp_path):
    """It does not know its data, nor settings of the task's own, nor what numpy was to draw."""
    state = read(stopped / FILE, torch.device("cpu"))
    del state["numpy"], state["settings"]["data_digest"], state["settings"]["own_settings"]
    write_whole(tmp_path / FILE, state)
    resumed = run(1, *SHORT, "--resume", str(tmp_path))
    assert list(losses(resumed)) == [3]


def test_what_only_a_rank_has_is_not_compared():
    """Its samples may come from another place the next time, as an environment's do."""
    config, task = parse_config(SHORT, {}), DatasetTask()
    task.own_samples = True
    assert settings_of(config, task, b"data") == {**config.decisive(), "own_settings": {}}


SHORT = ("--batch-size", "8", "--steps", "3")
FILE = "checkpoint-rank0-step2.pt"


@pytest.fixture
def stopped(run_once):
    """The folder of a run of one rank that has a checkpoint of step 2; it is only read."""
    return run_once(1, *SHORT, "--checkpoint-every", "2").run_dir


def cut(data):
    return data[: len(data) // 2]


def flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


@pytest.mark.parametrize("harm", [cut, flip])
def test_a_damaged_checkpoint_is_named(run, stopped, tmp_path, harm):
    (tmp_path / FILE).write_bytes(harm((stopped / FILE).read_bytes()))
    with pytest.raises(AssertionError, match=f"OptionError: .*{FILE} is damaged, or no checkpoint"):
        run(1, *SHORT, "--resume", str(tmp_path))


def test_a_checkpoint_of_another_run_is_refused(stopped):
    state = read(stopped / FILE, torch.device("cpu"))

    def now(*flags):
        same = {"data_digest": state["settings"]["data_digest"], "own_settings": {}}
        return parse_config([*SHORT, *flags], {}).decisive() | same

    def refused(*flags):
        with pytest.raises(OptionError) as error:
            require_same(stopped / FILE, state["settings"], now(*flags))
        return str(error.value).partition(f"{FILE} ")[2]

    assert refused("--lr", "0.1") == "was made with lr 0.002, not 0.1"
    assert refused("--strategy", "ddp") == 'was made with strategy "fedavg", not "ddp"'
    assert (
        refused("--lr-schedule", "cosine") == 'was made with lr_schedule "constant", not "cosine"'
    )
    own = {**state["settings"], "strategy": "/an/earlier/version/wrote/folders/ddp.py:DDP"}
    with pytest.raises(OptionError, match='made with strategy "ddp.py:DDP", not "fedavg"'):
        require_same(stopped / FILE, own, now())
    require_same(stopped / FILE, state["settings"], now("--steps", "9", "--eval-every", "1"))


def test_what_cannot_be_resumed_is_one_line_and_exit_2(data_dir, tmp_path):
    process = ForkedTrain(["--data-dir", data_dir, *SHORT, "--resume", tmp_path])
    _, err = process.communicate()
    assert process.returncode == 2
    assert err.count("\n") == 1, err
    assert "no checkpoint-rank0-step….pt there" in err


def test_what_was_fetched_from_nodes_is_found_and_more_steps_may_follow(run, stopped, tmp_path):
    folder = tmp_path / "fetched/files/node1"
    folder.mkdir(parents=True)
    shutil.copy(stopped / FILE, folder / FILE)
    with pytest.raises(AssertionError, match="is of step 2 already"):
        run(1, *SHORT, "--steps", "2", "--resume", str(stopped))
    flags = (*SHORT, "--steps", "5")
    resumed = run(1, *flags, "--resume", str(tmp_path / "fetched"))
    assert losses(resumed) == {n: losses(run(1, *flags))[n] for n in (3, 4, 5)}


def test_of_several_ranks_on_a_node_each_finds_its_own(tmp_path):
    for rank, node in enumerate(("node1", "node1", "node2")):
        path = tmp_path / "files" / node / f"checkpoint-rank{rank}-step3.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [find_for_resume(tmp_path, rank)[3].parent.name for rank in range(3)]
    assert found == ["node1", "node1", "node2"]


def test_ranks_go_on_from_the_latest_step_that_all_have(run):
    """One rank was killed before it had written its next checkpoint."""
    flags = flags_of("fedavg")
    ahead = run(2, *flags, "--checkpoint-every", "4")
    behind = run(2, *flags, "--checkpoint-every", "3").run_dir
    shutil.copy(behind / "checkpoint-rank0-step6.pt", ahead.run_dir)
    resumed = run(2, *flags, "--resume", str(ahead.run_dir))
    assert losses(resumed) == {n: losses(ahead)[n] for n in (5, 6, 7)}
    (ahead.run_dir / "checkpoint-rank0-step4.pt").unlink()
    with pytest.raises(AssertionError, match="no step that all ranks have"):
        run(2, *flags, "--resume", str(ahead.run_dir))
    # nor does any rank wait for one that has no checkpoint
    (ahead.run_dir / "checkpoint-rank1-step4.pt").unlink()
    with pytest.raises(AssertionError, match="no checkpoint-rank1-step….pt there"):
        run(2, *flags, "--resume", str(ahead.run_dir))


def test_a_killed_run_goes_on(run, data_dir, tmp_path):
    folder, flags = tmp_path / "killed", flags_of("fedavg")
    endless = ("--data-dir", str(data_dir), "--run-dir", str(folder), *flags)
    endless = (*endless, "--steps", "100000", "--checkpoint-every", "3")
    port = free_port()
    # Gloo misses about one death in forty (docs/LOG.md); then the timeout ends the other rank.
    patience = {"GRADWIRE_TIMEOUT_S": "20"}
    ranks = [ForkedTrain(endless, torchrun_environ(r, 2, port) | patience) for r in range(2)]
    for _ in ranks[0].stdout:
        if all([*folder.glob(f"checkpoint-rank{r}-*.pt")] for r in range(2)):
            break
    ranks[1].kill()
    for rank in ranks:
        rank.communicate()
    saved = max(
        int(path.stem.rpartition("step")[2]) for path in folder.glob("checkpoint-rank0*.pt")
    )
    until = ("--steps", str(saved + 2))
    resumed, whole = run(2, *flags, *until, "--resume", str(folder)), run(2, *flags, *until)
    assert saved + 2 in losses(resumed)
    assert losses(resumed).items() <= losses(whole).items()


def test_metrics_of_the_run_before_stay_where_it_goes_on_in_its_folder(tmp_path):
    for append in (False, True):
        Metrics(tmp_path, 0, 1, append=append).write(Start(0, 1.0))
    assert len(read_events(tmp_path / "metrics.jsonl")) == 2


class Phase(IntEnum):
    """A strategy's state that is an enumeration."""

    COLD, WARM = 1, 2


class Own(Strategy):
    """A strategy with all kinds of state."""

    __dataclass_fields__ = {}  # noqa: RUF012

    def setup(self, *args):
        self.model = torch.nn.Linear(2, 2)
        self.comm = self.optimizer = object()
        self.draw = random.Random(1)
        self.generator = torch.Generator().manual_seed(1)
        self.second = torch.nn.Linear(1, 1)
        self.seen = {"tensor": torch.zeros(2), "first": self.model.weight}
        self.momenta = defaultdict(lambda: torch.zeros(2))
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
    assert other.momenta["another"].tolist() == [0, 0]
    one.wait = lambda: one.outer
    with pytest.raises(OptionError, match="the strategy's wait is a function"):
        freeze(one)


RING, STAR = [[1, 3], [0, 2], [1, 3], [2, 0]], [[1, 2, 3], [0], [0], [0]]


def gossip_with(ranks):
    strategy, model = Gossip(), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    strategy.setup(model, optimizer, Comm(ranks, Clock(0.0)), 1)
    return strategy


def neighbours_after_resuming(ranks, before):
    """Return whom this rank sends to, and whether the rest of the state came back, after links were `before`."""
    earlier = gossip_with(replace(ranks, neighbours=tuple(before[ranks.rank])))
    earlier._weight = 0.5
    links = [("frozenset", [("plain", rank) for rank in row]) for row in before]
    now = gossip_with(ranks)
    thaw(now, {"_links": ("list", links), **freeze(earlier)})  # an earlier version wrote links, too
    return sorted(now._graph(1)[ranks.rank]), now._weight


def test_gossip_goes_on_over_the_links_that_there_are_now(pools):
    found = pools(4).run(neighbours_after_resuming, RING, neighbours=STAR)
    assert found == [(links, 0.5) for links in STAR]


def through_a_file(frozen, tmp_path):
    write_whole(tmp_path / "state.pt", {"settings": {}, "strategy": frozen})
    return read(tmp_path / "state.pt", torch.device("cpu"))["strategy"]


def test_state_by_parameter_is_that_of_the_same_parameter_afterwards(tmp_path):
    """As torch's own optimisers have it."""
    one, other = Own(), Own()
    for own in (one, other):
        own.setup()
    weight, bias = one.model.parameters()
    one.by_parameter = {weight: torch.ones(2), bias: [bias, one.model]}
    one.momenta[weight] += 3
    one.by_place = {(0, "a"): Phase.WARM}
    thaw(other, through_a_file(freeze(one), tmp_path))
    weight, bias = other.model.parameters()
    assert other.by_parameter[weight].tolist() == [1, 1]
    assert other.by_parameter[bias][0] is bias and other.by_parameter[bias][1] is other.model
    assert other.momenta[weight].tolist() == [3, 3] and other.momenta[bias].tolist() == [0, 0]
    assert other.by_place == {(0, "a"): Phase.WARM}
    one.by_parameter[torch.ones(1)] = 1
    with pytest.raises(OptionError, match="a key of the strategy's by_parameter is a Tensor"):
        freeze(one)


def test_what_is_written_can_be_read(tmp_path):
    one, other = Own(), Own()
    for own in (one, other):
        own.setup()
    one.constants = torch.Size([2, 3]), torch.float16, torch.device("cpu"), Phase.WARM
    thaw(other, through_a_file(freeze(one), tmp_path))
    assert other.constants == one.constants
    assert [type(part) for part in other.constants] == [type(part) for part in one.constants]
    one.mean = numpy.float64(0.5)  # a float, but not for torch.load
    with pytest.raises(OptionError, match="the strategy's mean is a float64: it has no file"):
        freeze(one)
    for name in ("Nothing", "system"):
        with pytest.raises(OptionError, match=f"there is no 'ls' of os.{name} any more"):
            thaw(other, {"phase": ("enum", ("os", name, "ls"))})
