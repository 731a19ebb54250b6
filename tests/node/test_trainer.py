"""Tests of EXO Gym's API: fit trains on real ranks and returns their common result; every argument has an effect."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from conftest import HANGS_S, free_port, read_events, torchrun_environ
from torch import nn
from torch.utils.data import Subset, TensorDataset

from node.base.options import OptionError
from node.exogym import (
    DeMoStrategy,
    DiLoCoStrategy,
    FedAvgStrategy,
    OptimSpec,
    SimpleReduceStrategy,
    SPARTADiLoCoStrategy,
    SPARTAStrategy,
    Trainer,
    own_strategy,
)
from node.exogym.fit_flags import launch_options
from node.strategies import STRATEGIES
from node.training.config import parse_config

TASK = """
import torch
from torch import nn
from torch.utils.data import TensorDataset


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)


def make_task():
    x = torch.randn(300, 4)
    y = x.sum(1)
    return Line(), TensorDataset(x[:256], y[:256]), TensorDataset(x[256:], y[256:])
"""
made = {}
exec(TASK, made)


class Fit:
    """The files that the ranks of one fit left."""

    def __init__(self, folder, ranks):
        self.folder = folder
        names = [f"metrics-rank{rank}.jsonl" for rank in range(ranks)]
        self.events = [read_events(folder / name) for name in names]
        self.parameters = torch.load(folder / "model.pt")

    def of(self, event, rank=0):
        return [line for line in self.events[rank] if line["event"] == event]

    @property
    def flat(self):
        return [x for value in self.parameters.values() for x in value.flatten().tolist()]


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """A function that calls fit on two forked ranks, as if torchrun had started them."""

    def start(change=None, **arguments):
        folder = tmp_path_factory.mktemp("fit")
        port = free_port()
        fork = multiprocessing.get_context("fork")
        asked = {"strategy": FedAvgStrategy(H=2), "max_steps": 4, "batch_size": 8, **arguments}
        ranks = [
            fork.Process(target=_be_rank, args=(rank, port, folder, change, asked))
            for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(HANGS_S)
            rank.kill()
        logs = "".join((folder / f"log{rank}").read_text() for rank in range(2))
        assert [rank.exitcode for rank in ranks] == [0, 0], logs
        return Fit(folder, 2)

    return start


@pytest.fixture(scope="module")
def plain(fit):
    """What a fit leaves of which no test asks anything special."""
    return fit()


def _be_rank(rank, port, folder, change, asked):
    log = (folder / f"log{rank}").open("w", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    os.environ |= torchrun_environ(rank, 2, port) | {"GRADWIRE_RUN_DIR": str(folder)}
    torch.manual_seed(1)
    parts = made["make_task"]()
    trainer = Trainer(*(change(*parts) if change else parts))
    trainer.fit(backend="local", num_nodes=2, **asked)
    raise AssertionError("in a rank fit does not return")


@pytest.fixture
def script(tmp_path):
    """A function that runs a user's script, with TASK at its top, and returns the completed process."""

    def start(text, *words, check=0, stdin=False):
        path = tmp_path / "mine.py"
        path.write_text(TASK + textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "-" if stdin else str(path), *words],
            input=path.read_text() if stdin else None,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        assert done.returncode == check, done.stdout + done.stderr
        return done

    return start


def test_fit_returns_what_the_ranks_agreed_on(script, tmp_path):
    """A sweep like EXO Gym's examples: nothing is seeded, and the second fit continues from the first."""
    done = script(
        """
        import sys
        from dataclasses import dataclass
        from pathlib import Path
        from node.exogym import DiLoCoStrategy, OptimSpec, Trainer, own_strategy
        from node.base.options import option
        from node.strategies.base import Strategy

        @dataclass
        class Mine(Strategy):
            every: int = option(9, "steps between two averages")

            def step(self, step):
                if step == 1:
                    torch.save(list(self.parameters), Path(__file__).with_name(f"began{self.comm.rank}.pt"))
                self.optimizer.step()
                if step % self.every == 0:
                    self.comm.average(self.parameters)

        if __name__ == "__main__":
            model, train, _ = make_task()
            train, val = torch.utils.data.random_split(train, [200, 56])
            before = [p.clone() for p in model.parameters()]
            spec = OptimSpec(torch.optim.AdamW, lr=0.02)
            trainer = Trainer(model, train, val)
            first = trainer.fit(backend="local", strategy=DiLoCoStrategy(spec, H=5), num_nodes=2,
                                max_steps=10, batch_size=16)
            assert all(map(torch.equal, model.parameters(), before))
            assert not any(map(torch.equal, first.parameters(), before))
            second = Trainer(first, train, val)
            mine = own_strategy(f"{__file__}:Mine", {"every": 5})
            second.fit(backend="local", strategy=mine, num_nodes=2, num_epochs=2, batch_size=20)
            with open("folders", "a") as file:
                print(sys.argv[1], trainer.run_folder, second.run_folder, file=file)
            torch.save(first.state_dict(), "first.pt")
        """,
        "--word",
    )
    assert "RuntimeWarning" not in done.stderr  # of the ranks, too
    lines = (tmp_path / "folders").read_text().splitlines()
    assert len(lines) == 1  # no rank came here
    word, *folders = lines[0].split()
    first, second = (Fit(Path(folder), 2) for folder in folders)
    returned = torch.load(tmp_path / "first.pt")
    assert all(torch.equal(returned[name], value) for name, value in first.parameters.items())
    assert word == "--word" and first.of("start")[0]["config"]["task"] == "mine.py"
    # Outer steps come after H steps, not after H + 1, and nothing else is sent in between.
    assert [bool(line["sent_bytes"]) for line in first.of("step")] == ([False] * 4 + [True]) * 2
    assert [bool(line["sent_bytes"]) for line in second.of("step")] == ([False] * 4 + [True]) * 2
    # two epochs of 200 samples, by two ranks with a batch size of 20
    assert len(second.of("step")) == 10
    for rank in range(2):
        began = torch.load(tmp_path / f"began{rank}.pt")
        assert all(map(torch.equal, began, returned.values()))  # where the first fit ended


def test_a_split_that_ranks_draw_otherwise_is_refused(script):
    """Otherwise samples that the script holds out for itself are trained on."""
    done = script(
        """
        import random
        from node.exogym import Trainer

        if __name__ == "__main__":
            model, train, _ = make_task()
            rows = list(range(256))
            random.shuffle(rows)
            parts = [TensorDataset(*train[part]) for part in (rows[:200], rows[200:])]
            Trainer(model, *parts).fit(backend="local", strategy="ddp", num_nodes=1, max_steps=1)
        """,
        check=1,
    )
    error = done.stderr.splitlines()[-1]
    assert (
        "the script has made other datasets on this rank than where it was started: seed" in error
    )


@pytest.mark.slow
def test_a_mistake_and_a_failure_of_one_rank_end_all(script):
    done = script("""
        from node.exogym import OptionError, Trainer

        class Broken(TensorDataset):
            def __getitem__(self, number):
                raise ArithmeticError("no sample")

        def small_on_rank_1(rank, ranks, training):
            return train if rank == 0 else TensorDataset(*train[:3])

        def broken_on_rank_1(rank, ranks, training):
            return train if rank == 0 else Broken(*train.tensors)

        if __name__ == "__main__":
            model, train, val = make_task()
            asked = dict(backend="local", strategy="fedavg", num_nodes=2, max_steps=9)
            try:
                Trainer(model, small_on_rank_1, val).fit(**asked)
            except OptionError as error:
                print("mistake:", error)
            try:
                trainer = Trainer(model, broken_on_rank_1, val)
                trainer.fit(**asked)
            except RuntimeError as error:
                print("failure:", error)
                print("folder:", trainer.run_folder)
        """)
    said = done.stdout.splitlines()
    assert "mistake: --batch-size: rank 1 wants more than its 3 samples" in said
    [folder] = [line.removeprefix("folder: ") for line in said if line.startswith("folder: ")]
    assert (Path(folder) / "metrics-rank0.jsonl").is_file()
    failure = "failure: rank 1 of 2 failed: ArithmeticError: no sample; its words are above"
    assert f"{failure}, its files in {folder}" in said
    assert done.stderr.count("fit: error: ") == 1  # and no traceback of the mistake
    assert done.stderr.count("OptionError") == 0


def test_ranks_end_with_the_script_that_was_killed(tmp_path):
    path = tmp_path / "killed.py"
    path.write_text(f"""{TASK}
from node.exogym import Trainer
if __name__ == "__main__":
    asked = dict(strategy="fedavg", num_nodes=2, max_steps=10_000_000)
    Trainer(*make_task()).fit(backend="local", **asked)
""")
    parent = subprocess.Popen([sys.executable, str(path)], cwd=tmp_path)
    try:
        assert _within(HANGS_S, lambda: list(tmp_path.glob("runs/*/metrics-rank1.jsonl")))
        assert len(_ranks_of(path)) == 2
    finally:
        parent.kill()
        parent.wait()
    assert _within(60, lambda: not _ranks_of(path))


def test_an_interrupted_fit_on_a_cluster_lets_the_launcher_end_its_ranks(tmp_path):
    """With a fake launcher that takes a second to end, as the real one is in no node."""
    launcher = tmp_path / "cluster" / "launch.py"
    launcher.parent.mkdir()
    launcher.write_text("""
import pathlib, signal, sys, time
def end(*_):
    time.sleep(1)
    pathlib.Path("ended").touch()
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
pathlib.Path("started").touch()
time.sleep(60)
""")
    path = tmp_path / "mine.py"
    path.write_text(f"""{TASK}
from node.exogym import Trainer
if __name__ == "__main__":
    Trainer(*make_task()).fit(backend="cluster", strategy="ddp", num_nodes=2, max_steps=1)
""")
    parent = subprocess.Popen(
        [sys.executable, str(path)], cwd=tmp_path, stderr=subprocess.PIPE, preexec_fn=_hear_sigint
    )
    assert _within(HANGS_S, (tmp_path / "started").exists)
    parent.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in parent.communicate(timeout=HANGS_S)[1]
    assert (tmp_path / "ended").exists()


def test_the_folder_of_a_run_that_failed_on_a_cluster_is_the_one_that_the_launcher_names(
    script, tmp_path
):
    """The launcher is a fake one: in a node there is none."""
    launcher = tmp_path / "cluster" / "launch.py"
    launcher.parent.mkdir()
    launcher.write_text("""
import os, pathlib, sys
named = pathlib.Path("named")
if not named.exists():
    print(f'{{"folder": "{os.getcwd()}/runs/it"}}')
    named.touch()
sys.exit(1)
""")
    done = script("""
        from node.exogym import Trainer

        if __name__ == "__main__":
            trainer = Trainer(*make_task())
            for _ in range(2):
                try:
                    trainer.fit(backend="cluster", strategy="ddp", num_nodes=2, max_steps=1)
                except RuntimeError as error:
                    print(error, "|", trainer.run_folder)
        """)
    said = "cluster.launch ended with exit code 1; its words are above"
    folder = f"{tmp_path}/runs/it"
    assert done.stdout.splitlines() == [
        f"{said}, the run's files in {folder} | {folder}",
        f"{said} | {folder}",  # the second names no folder of its own
    ]


def _hear_sigint():
    """Restore SIGINT, which is ignored if these tests run in the background, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _within(seconds, condition):
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _ranks_of(script):
    """Return the processes that run a script again as ranks."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            found += [path] if {b"node.exogym.script_rank", bytes(script)} <= set(words) else []
    return found


def test_at_a_prompt_there_is_nothing_to_start_again(script):
    done = script(
        """
        from node.exogym import Trainer
        Trainer(*make_task()).fit(backend="local", strategy="ddp", num_nodes=2, max_steps=1)
        """,
        check=1,
        stdin=True,
    )
    error = done.stderr.splitlines()[-1]
    assert error.endswith("there is none: put it into a file, and start that")


def test_fit_is_node_train(fit, run, tmp_path):
    (tmp_path / "mine.py").write_text(TASK)
    spec = OptimSpec(torch.optim.AdamW, lr=0.003, weight_decay=0.1)
    fitted = fit(strategy=DiLoCoStrategy(spec, H=2, max_norm=0.5), val_interval=3)
    flags = "--strategy diloco --set H=2 --lr 0.003 --weight-decay 0.1 --clip-norm 0.5"
    flags += " --steps 4 --batch-size 8 --eval-every 3 --task"
    trained = run(2, *flags.split(), f"{tmp_path}/mine.py:make_task")
    assert torch.equal(torch.tensor(fitted.flat), trained.parameters[0])
    assert fitted.of("eval")[-1]["validation_loss"] == trained.of("eval")[-1]["validation_loss"]
    assert [line["step"] for line in fitted.of("eval")] == [3, 4]


CHANGES = {
    "strategy": SimpleReduceStrategy(),
    "max_steps": 5,
    "batch_size": 9,
    "autocast": True,
    "seed": 2,
}


def test_every_argument_changes_the_result(fit, plain):
    different = [plain.flat] + [fit(**{key: value}).flat for key, value in CHANGES.items()]
    assert len(set(map(tuple, different))) == len(different)


def test_tests_and_checkpoints_change_nothing_and_are_made(fit, plain):
    """EXO Gym trains rank 0 in eval mode after its first test."""
    looked = fit(val_interval=1, val_size=10, checkpoint_interval=2)
    assert looked.flat == plain.flat
    assert [line["step"] for line in looked.of("eval")] == [1, 2, 3, 4]
    found = sorted(path.name for path in looked.folder.glob("checkpoint-*"))
    assert found == ["checkpoint-rank0-step2.pt", "checkpoint-rank1-step2.pt"]
    assert looked.of("eval")[-1]["validation_loss"] != plain.of("eval")[-1]["validation_loss"]


def test_a_fit_goes_on_from_the_checkpoints_of_another(fit):
    """EXO Gym writes checkpoints, but cannot read them."""
    whole = fit(checkpoint_interval=3)
    rest = fit(checkpoint_interval=3, resume=whole.folder)
    assert rest.flat == whole.flat
    assert [line["step"] for line in rest.of("step")] == [4]


@pytest.mark.slow
def test_a_script_goes_on_from_an_earlier_fit_of_its_own(script, tmp_path):
    """Its ranks reach the second fit without having run the first, so they do not know its folder."""
    script("""
        from node.exogym import Trainer

        if __name__ == "__main__":
            trainer = Trainer(*make_task())
            asked = dict(backend="local", strategy="fedavg", num_nodes=2, max_steps=4)
            trainer.fit(**asked, checkpoint_interval=3)
            first = trainer.run_folder
            trainer.fit(**asked, checkpoint_interval=3, resume=first)
            with open("folders", "w") as file:
                print(first, trainer.run_folder, file=file)
        """)
    whole, rest = (Fit(Path(path), 2) for path in (tmp_path / "folders").read_text().split())
    assert [line["step"] for line in rest.of("step")] == [4]
    assert rest.flat == whole.flat


@pytest.mark.slow
def test_a_script_goes_on_from_a_fit_that_failed(script, tmp_path):
    script("""
        from pathlib import Path
        from node.exogym import Trainer

        class Fragile(Line):
            batches = 0

            def forward(self, batch):
                self.batches += self.training
                if self.batches == 5 and not Path("mended").exists():
                    raise ArithmeticError("no more")
                return super().forward(batch)

        if __name__ == "__main__":
            _, *data = make_task()
            trainer = Trainer(Fragile(), *data)
            asked = dict(backend="local", strategy="fedavg", num_nodes=2, max_steps=6)
            try:
                trainer.fit(**asked, checkpoint_interval=3)
            except RuntimeError:
                Path("mended").touch()
            trainer.fit(**asked, checkpoint_interval=3, resume=trainer.run_folder)
            Path("folder").write_text(str(trainer.run_folder))
        """)
    rest = Fit(Path((tmp_path / "folder").read_text()), 2)
    assert [line["step"] for line in rest.of("step")] == [4, 5, 6]


@pytest.mark.slow
def test_ranks_start_with_the_words_and_in_the_folder_that_the_script_was_started_with(
    script, tmp_path
):
    script(
        """
        import os
        import sys
        from node.exogym import Trainer

        if __name__ == "__main__":
            assert sys.argv.pop(1) == "--word"
            assert os.path.exists("mine.py")
            os.makedirs("deeper", exist_ok=True)
            os.chdir("deeper")
            fit = Trainer(*make_task()).fit
            fit(backend="local", strategy="ddp", num_nodes=1, max_steps=1)
        """,
        "--word",
    )
    assert len(list(tmp_path.glob("deeper/runs/*/model.pt"))) == 1


def test_minibatches_add_up_to_the_batch(fit):
    def steady(model, train, val):
        model.net[2].p = 0.0  # dropout would draw differently in parts
        return model, train, val

    spec = OptimSpec("sgd", lr=0.1, momentum=0.5)
    whole, parts = (
        fit(steady, strategy=SimpleReduceStrategy(spec), minibatch_size=size) for size in (8, 2)
    )
    assert parts.of("start")[0]["config"]["accumulate"] == 4
    assert parts.flat == pytest.approx(whole.flat, rel=1e-4, abs=1e-6)


def test_ranks_take_their_own_datasets(fit):
    """EXO Gym gives every rank the same seed: the same data would be used in the same order."""

    def factory(rank, ranks, training):
        assert ranks == 2 and isinstance(training, bool)
        return made["data"]

    def own(model, train, val):
        made["data"] = train
        model.net[2].p = 0.0
        return model, factory, factory

    fitted = fit(own, strategy="gossip", max_steps=1)
    losses = [fitted.of("step", rank)[0]["loss"] for rank in range(2)]
    assert losses[0] != losses[1]


def test_ranks_may_hold_out_parts_of_their_own(fit, plain):
    """Only rank 0 tests; the parts differ in their indices and in their sizes."""

    def part(rank, ranks, training):
        return Subset(made["data"], range(rank, 43, ranks))

    def own(model, train, val):
        made["data"] = val
        return model, train, part

    fitted = fit(own)
    assert fitted.flat == plain.flat
    losses = [each.of("eval")[-1]["validation_loss"] for each in (fitted, plain)]
    assert losses[0] != losses[1]


SPEC = OptimSpec(cls=torch.optim.AdamW, lr=3e-4, weight_decay=0.05)
SGD = OptimSpec(torch.optim.SGD, lr=3e-4, weight_decay=0.05)
COMMON = {
    "max_norm": 0.7,
    "lr_scheduler": "lambda_cosine",
    "lr_scheduler_kwargs": {"warmup_steps": 9.0, "cosine_anneal": True},
}


@pytest.mark.parametrize(
    ("make", "name", "options"),
    [
        (SimpleReduceStrategy, "ddp", {}),
        (FedAvgStrategy, "fedavg", {"H": 1, "island_size": 0}),
        (DiLoCoStrategy, "diloco", {"H": 100, "outer_lr": 0.7, "outer_momentum": 0.9}),
        (SPARTAStrategy, "sparta", {"p": 0.005}),
        (SPARTADiLoCoStrategy, "sparta-diloco", {"H": 100, "p": 0.005}),
        (DeMoStrategy, "demo", {"decay": 0.999, "topk": 32, "chunk": 64}),
    ],
)
def test_every_strategy_takes_the_optimiser_that_is_asked_for(make, name, options):
    """In EXO Gym, fedavg and demo use another one, and max_norm does not apply to all."""
    spec, optimizer = (SGD, "sgd") if name == "demo" else (SPEC, "adamw")
    config = parse_config(make(spec, **COMMON).flags, {})
    assert (config.strategy, config.optimizer, config.lr) == (name, optimizer, 3e-4)
    assert (config.weight_decay, config.clip_norm) == (0.05, 0.7)
    assert (config.lr_schedule, config.warmup_steps, config.final_lr) == ("cosine", 9, 0.1)
    assert config.strategy_options.items() >= options.items()
    with pytest.raises(TypeError, match="unexpected keyword argument 'p'"):
        make(SPEC, p=0.05)


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_an_optimiser_there_is_one_that_the_strategy_goes_with(name):
    config = parse_config(own_strategy(name).flags, {})
    wanted = ("sgd", 0.0) if name == "demo" else ("adamw", 0.01)
    assert (config.optimizer, config.weight_decay) == wanted
    assert config.lr == OptimSpec().lr


def test_arguments_of_strategies_arrive():
    outer = OptimSpec(torch.optim.SGD, lr=0.5, momentum=0.8, nesterov=True)
    config = parse_config(SPARTADiLoCoStrategy("sgd", outer, p_sparta=0.2, H=7).flags, {})
    options = {"outer_lr": 0.5, "outer_momentum": 0.8, "p": 0.2, "H": 7}
    assert config.strategy_options.items() >= options.items()
    config = parse_config(DiLoCoStrategy("adamw", "sgd").flags, {})
    assert config.strategy_options.items() >= {"outer_lr": 1e-3, "outer_momentum": 0.0}.items()
    config = parse_config(DeMoStrategy(compression_topk=4, weight_decay=0.1).flags, {})
    assert (config.optimizer, config.lr, config.weight_decay) == ("sgd", 1e-3, 0.1)
    config = parse_config(own_strategy("powersgd", {"rank": 2}, optim_spec="adam").flags, {})
    assert (config.strategy_options["rank"], config.weight_decay) == (2, 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimSpec(torch.optim.RMSprop).flags(), "unknown optimizer 'RMSprop'"),
        (
            lambda: OptimSpec(type("AdamW", (torch.optim.AdamW,), {})).flags(),
            "OptimSpec: AdamW of test_trainer is not torch.optim's",
        ),
        (lambda: OptimSpec("adam", weight_decay=0.1).flags(), "take torch.optim.AdamW"),
        (lambda: OptimSpec("sgd", nesterov=True).flags(), "for outer_optim_spec alone"),
        (lambda: DiLoCoStrategy(SPEC, SPEC), "outer_optim_spec must be OptimSpec"),
        (lambda: DiLoCoStrategy(torch.optim.AdamW), "optim_spec must be an OptimSpec"),
        (lambda: DiLoCoStrategy(SPEC, torch.optim.SGD), "outer_optim_spec must be an OptimSpec of"),
        (lambda: DiLoCoStrategy(SPEC, "sdg"), "unknown optimizer 'sdg': did you mean 'sgd'"),
        (lambda: SPARTAStrategy(lr_scheduler="step"), "unknown lr_scheduler 'step'"),
        (lambda: SPARTAStrategy(lr_scheduler_kwargs={"warmup_steps": 1}), "without lr_scheduler="),
        (
            lambda: FedAvgStrategy(lr_scheduler="lambda_cosine", lr_scheduler_kwargs={"warmup": 1}),
            "did you mean 'warmup_steps'",
        ),
        (
            lambda: FedAvgStrategy(
                lr_scheduler="lambda_cosine", lr_scheduler_kwargs={"warmup_steps": 0.5}
            ),
            "lr_scheduler_kwargs: warmup_steps must be a whole number, not 0.5",
        ),
        (
            lambda: FedAvgStrategy(
                lr_scheduler="lambda_cosine", lr_scheduler_kwargs={"max_steps": 9}
            ),
            "lr_scheduler_kwargs: max_steps is an argument of fit",
        ),
        (lambda: DeMoStrategy(SPEC, weight_decay=0.1), "put it into that"),
    ],
)
def test_what_a_strategy_has_not_is_said(make, message):
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "clutser"}, "unknown backend 'clutser': did you mean 'cluster'"),
        ({"strategy": "dilocoo"}, "unknown strategy 'dilocoo': did you mean 'diloco'"),
        ({"strategy": nn.Linear}, "strategy must be one of node.exogym or a name"),
        ({"strategy": FedAvgStrategy(H=0)}, "--set H must be at least 1"),
        ({"strategy": DeMoStrategy(SPEC)}, "--optimizer adamw with --strategy demo"),
        ({"strategy": DeMoStrategy(OptimSpec("sgd", momentum=0.9))}, "--momentum with --strategy"),
        ({"num_nodes": 0}, "num_nodes must be at least 1"),
        ({"minibatch_size": 6}, "minibatch_size 6 must divide batch_size 8"),
        ({"minibatch_size": 16}, "minibatch_size must be at most 8"),
        ({"batch_size": 200}, "2 ranks want more than 256 samples"),
        ({"max_steps": 0}, "--steps must be at least 1"),
        ({"val_interval": -1}, "--eval-every must be at least 0"),
        ({"val_size": -1}, "val_size must be at least 1, not -1"),
        ({"val_size": 0}, "val_size must be at least 1, not 0"),
        ({"max_steps": None, "batch_size": 200}, "batch_size 200: 2 ranks want more than 256"),
        ({"max_steps": None, "num_epochs": 0}, "num_epochs must be at least 1, not 0"),
        ({"profile": "wan"}, "go with backend='cluster'"),
        ({"backend": "cluster"}, "needs the package cluster/, and Docker"),
    ],
)
def test_mistakes_are_named_before_anything_starts(arguments, message):
    asked = {"backend": "local", "strategy": "ddp", "num_nodes": 2, "max_steps": 1, "batch_size": 8}
    with pytest.raises(OptionError, match=message) as error:
        Trainer(*_still()).fit(**(asked | arguments))
    assert "\n" not in str(error.value)


def _still():
    """Return the task without random numbers, as this process must not compute."""
    data = TensorDataset(torch.zeros(256, 4), torch.zeros(256))
    return made["Line"](), data, data


def test_a_dataset_is_no_model_and_a_factory_needs_steps():
    model, train, val = _still()
    asked = {"backend": "local", "strategy": "ddp", "num_nodes": 2}
    with pytest.raises(OptionError, match="Trainer: model must be a torch.nn.Module"):
        Trainer(train, train, val).fit(**asked)
    with pytest.raises(OptionError, match="max_steps: how many"):
        Trainer(model, lambda rank, ranks, training: train, val).fit(**asked)


def test_of_ranks_that_failed_the_root_cause_is_named_as_in_a_cluster(tmp_path):
    from node.exogym import local

    def fail(rank, words, second):
        path = tmp_path / f"error-rank{rank}.json"
        path.write_text(json.dumps({"message": {"message": words}}))
        os.utime(path, (second, second))

    def said(*ended):
        return str(local._failure([local.RankEnd(*end) for end in ended], tmp_path))

    fail(0, "RuntimeError: rank 0", 100)
    fail(2, "RuntimeError: rank 2", 99)
    assert "rank 1 of 3 failed: signal 9" in said((1, 101), (-9, 98), (1, 101))
    # A rank that is killed after another has failed by itself, such as one that aborts, is not the root cause.
    assert "rank 2 of 3 failed: RuntimeError: rank 2" in said((1, 101), (-6, 99.5), (1, 101))
    assert "rank 2 of 3 failed: RuntimeError: rank 2" in said((1, 101), (0, 101), (1, 101))
    fail(1, "Connection closed by peer", 98)
    assert "rank 2 of 3 failed: RuntimeError: rank 2" in said((1, 101), (1, 101), (1, 101))


def test_a_script_may_leave_its_folder_before_it_names_a_profile(tmp_path, monkeypatch):
    """The launcher starts in the first folder, and would look there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far.yml").touch()
    words = launch_options("cluster", None, "far.yml", "ring", ("--seed", "2"))
    assert words == ["--profile", str(tmp_path / "far.yml"), "--topology", "ring", "--seed", "2"]
    assert launch_options("cluster", None, "wan.yml", None, ()) == ["--profile", "wan.yml"]


def test_an_empty_profile_is_not_taken_for_none():
    """The launcher refuses it; if it were dropped, the run would use whatever links there are."""
    assert launch_options("cluster", None, "", None, ()) == ["--profile", ""]
    with pytest.raises(OptionError, match="go with backend='cluster'"):
        launch_options("local", None, "", None, ())
