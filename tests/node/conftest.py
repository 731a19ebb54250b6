"""Real ranks for the tests: forked processes that communicate with gloo over loopback.

Three ranks that are forked from a process with torch imported train in under a second. This process itself must
never compute with torch, or processes forked from it afterwards could hang.
"""

import gc
import gzip
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch
from tiny import train as train_tiny

import node
from node.dist.flat import flatten
from node.dist.process_group import process_group
from node.dist.rank_env import read_rank_env
from node.tasks.fashion_mnist import DEBIAN_DIR
from node.train import main, train
from node.training.config import parse_config

# No test takes this long, however busy the machine: a test that does hangs.
HANGS_S = 300

# Packages of others that ranks import late: every optimizer the compiler, and gymnasium the module of an environment.
IMPORTED_LATE = ("torch._dynamo", "torch.utils.data", "safetensors.numpy", "safetensors.torch")
IMPORTED_LATE += ("pymapf", "gymnasium.envs.classic_control")


def import_what_ranks_import():
    """Import all modules of node/ and what they import late.

    Otherwise each rank imports them for itself, which takes it longer than most trainings here.
    """
    folder = Path(node.__file__).parent
    for path in folder.rglob("*.py"):
        if path.stem not in ("__init__", "__main__"):
            import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    for name in IMPORTED_LATE:
        import_module(name)


import_what_ranks_import()
gc.freeze()  # children then need not scan (and so copy) all of torch to free their own garbage


def pytest_configure(config):
    config.addinivalue_line("markers", "computes: with torch, in the process of the test")
    config.addinivalue_line("markers", "slow: see pyproject.toml, which is not in the image")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run each test that computes in a process of its own, because ranks are forked from this one."""
    if not pyfuncitem.get_closest_marker("computes"):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_call, args=(theirs, pyfuncitem.obj, arguments))
    process.start()
    theirs.close()
    try:
        said = mine.recv() if mine.poll(HANGS_S) else "it hangs"
    except EOFError:
        said = "it ended without a word"
    process.kill()
    process.join()
    assert not said, said
    return True


def _call(pipe, function, arguments):
    """Run a test and send its error, or nothing."""
    try:
        function(**arguments)
        pipe.send("")
    except BaseException:
        pipe.send(traceback.format_exc())
    os._exit(0)


class Ranks:
    """The files that the ranks of one run left, by rank."""

    def __init__(self, run_dir: Path, world_size: int) -> None:
        self.run_dir = run_dir
        names = ["metrics.jsonl"]
        if world_size > 1:
            names = [f"metrics-rank{rank}.jsonl" for rank in range(world_size)]
        self.events = [read_events(run_dir / name) for name in names]
        self.parameters, self.buffers = (
            [torch.load(run_dir / f"{kind}{rank}.pt") for rank in range(world_size)]
            for kind in ("parameters", "buffers")
        )

    def of(self, event, rank=0):
        """Return all lines of this event that a rank wrote."""
        return [line for line in self.events[rank] if line["event"] == event]

    @property
    def end(self):
        """Rank 0's end line."""
        return self.of("end")[0]


def read_events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun_environ(rank, world_size, port):
    """Return the environment that torchrun sets for ranks on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class Forked:
    """A process forked from this one, with streams of its own; has the part of Popen's interface that the tests use."""

    def __init__(self, target, *args):
        reading, writing = os.pipe()
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by communicate
        self._process = multiprocessing.get_context("fork").Process(
            target=_begin_anew, args=((writing, self._stderr.fileno()), target, args)
        )
        self._process.start()
        os.close(writing)
        self.stdout = os.fdopen(reading)

    def kill(self):
        os.kill(self._process.pid, signal.SIGKILL)

    @property
    def returncode(self):
        return self._process.exitcode

    def communicate(self):
        """Wait for the process to end and return its remaining output; fail if it hangs."""
        self._process.join(HANGS_S)
        hung = self.returncode is None
        if hung:
            self.kill()
        with self.stdout, self._stderr:
            out = self.stdout.read()
            self._stderr.seek(0)
            err = self._stderr.read()
        assert not hung, out + err
        return out, err


def _begin_anew(streams, target, args):
    """Take on these streams and an environment without a run's variables, as a new Python would, and go on."""
    for stream, fd in enumerate(streams, 1):
        os.dup2(fd, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    for name in [name for name in os.environ if name.startswith("GRADWIRE_")]:
        del os.environ[name]
    target(*args)


class ForkedTrain(Forked):
    """`python -m node.train` without the time to import torch."""

    def __init__(self, flags, environ=None):
        super().__init__(_be_node_train, [str(flag) for flag in flags], environ or {})


def _be_node_train(flags, environ):
    os.environ |= environ
    sys.argv = ["node.train", *flags]
    main()


class Pool:
    """Ranks that stay: forked once, with one process group, they run one case after another."""

    def __init__(self, world_size: int) -> None:
        fork = multiprocessing.get_context("fork")
        port = free_port()
        self._pipes, self._ranks = [], []
        for rank in range(world_size):
            mine, theirs = fork.Pipe()
            environ = torchrun_environ(rank, world_size, port)
            self._ranks.append(fork.Process(target=_serve, args=(theirs, environ), daemon=True))
            self._ranks[-1].start()
            self._pipes.append(mine)

    def run(self, function, *args, neighbours=None, **kwargs):
        """Return what `function(ranks, …)` returned, by rank; `neighbours` has those of each rank."""
        for rank, pipe in enumerate(self._pipes):
            pipe.send((function, args, kwargs, tuple(neighbours[rank]) if neighbours else ()))
        answers = [pipe.recv() if pipe.poll(HANGS_S) else "no answer" for pipe in self._pipes]
        errors = [answer for answer in answers if isinstance(answer, str)]
        if errors:
            self.stop()
            raise AssertionError("\n".join(errors))
        return [answer[0] for answer in answers]

    def stop(self):
        for rank in self._ranks:
            rank.kill()
            rank.join()

    @property
    def lives(self):
        return all(rank.is_alive() for rank in self._ranks)


def _serve(pipe, environ):
    """Run one rank of a pool: join the group, then run cases until the pipe is closed."""
    ranks = read_rank_env(environ)
    torch.set_num_threads(1)
    with process_group(ranks, torch.device("cpu"), 30):
        while True:
            function, args, kwargs, neighbours = pipe.recv()
            try:
                pipe.send((function(replace(ranks, neighbours=neighbours), *args, **kwargs),))
            except BaseException:
                pipe.send(traceback.format_exc())


@pytest.fixture(scope="session")
def pools():
    """A function that returns the pool with this number of ranks, always the same one while it lives."""
    made = {}

    def pool(world_size):
        if world_size not in made or not made[world_size].lives:
            made[world_size] = Pool(world_size)
        return made[world_size]

    yield pool
    for one in made.values():
        one.stop()


@pytest.fixture(scope="session")
def tiny(pools):
    """A function that trains the tiny model on this number of ranks and returns what each rank saw, by rank."""
    return lambda world_size, *args, **kwargs: pools(world_size).run(train_tiny, *args, **kwargs)


@pytest.fixture(scope="session")
def tiny_once(tiny):
    """`tiny` with a cache: a run that many tests compare with is trained once."""
    return cache(tiny)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """The first 1,536 training and 256 test pictures of Fashion-MNIST, which are quick to read and test.

    Also some Python code, for the task that learns it.
    """
    folder = tmp_path_factory.mktemp("data")
    for number in range(40):
        lines = [f"def f{n}(x):\n    return x * {n * number}\n\n" for n in range(50)]
        (folder / f"text{number}.py").write_text("".join(lines))
    for path in DEBIAN_DIR.glob("*-ubyte"):
        count = 256 if path.name.startswith("t10k") else 1536
        data = path.read_bytes()
        header, size = (16, 784) if "images" in path.name else (8, 1)
        cut = data[:4] + count.to_bytes(4, "big") + data[8 : header + count * size]
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(cut, 1))
    return folder


@pytest.fixture(scope="session")
def run(data_dir, tmp_path_factory):
    """A function that trains on real ranks and returns their files; fails if a rank fails."""

    def start(world_size, *flags, environ=None):
        run_dir = tmp_path_factory.mktemp("run")
        port = free_port()
        fork = multiprocessing.get_context("fork")
        ranks = [
            fork.Process(
                target=_train_and_exit,
                args=(
                    ["--data-dir", str(data_dir), "--run-dir", str(run_dir), *flags],
                    torchrun_environ(rank, world_size, port) | (environ or {}),
                    run_dir,
                ),
            )
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(HANGS_S)
            rank.kill()
        failed = [n for n, rank in enumerate(ranks) if rank.exitcode != 0]
        if failed:
            raise AssertionError("".join((run_dir / f"log{n}").read_text() for n in failed))
        return Ranks(run_dir, world_size)

    return start


@pytest.fixture(scope="session")
def run_once(run):
    """`run` with a cache: a run of which tests only read is trained once. Not for tests that replace parts of node/."""
    return cache(run)


def _train_and_exit(flags, environ, run_dir):
    rank = environ["RANK"]
    log = (run_dir / f"log{rank}").open("w", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    code = 1
    try:
        torch.set_default_dtype(getattr(torch, environ.get("DEFAULT_DTYPE", "float32")))
        model = train(parse_config(flags, environ))
        buffers = [torch.empty(0), *(b for b in model.buffers() if b.is_floating_point())]
        torch.save(flatten(list(model.parameters())), run_dir / f"parameters{rank}.pt")
        torch.save(flatten(buffers), run_dir / f"buffers{rank}.pt")
        code = 0
    except BaseException:
        traceback.print_exc(file=log)
    finally:
        sys.stdout.flush()
        os._exit(code)
