"""Real ranks for the tests: forked processes that talk gloo over loopback.

Forked from a process that has imported torch, three ranks train in under a second. This process
itself must never compute with torch: what is forked from it afterwards could hang.
"""

import gzip
import json
import multiprocessing
import os
import socket
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch._dynamo  # noqa: F401  every optimizer wants it, and it takes a second: once is enough

from node.comm import flatten
from node.config import parse_config
from node.tasks.fashion_mnist import DEBIAN_DIR
from node.train import train


class Ranks:
    """What the ranks of one run left behind, by rank."""

    def __init__(self, run_dir: Path, world_size: int) -> None:
        self.run_dir = run_dir
        names = ["metrics.jsonl"]
        if world_size > 1:
            names = [f"metrics-rank{rank}.jsonl" for rank in range(world_size)]
        self.events = [read_events(run_dir / name) for name in names]
        self.parameters = [
            torch.load(run_dir / f"parameters{rank}.pt") for rank in range(world_size)
        ]

    def of(self, event, rank=0):
        """All lines of this event that a rank wrote."""
        return [line for line in self.events[rank] if line["event"] == event]

    @property
    def end(self):
        """Rank 0's last line."""
        return self.of("end")[0]


def read_events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun_environ(rank, world_size, port):
    """What torchrun sets for ranks on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """The first 1,536 training and 256 test pictures of Fashion-MNIST: quick to read and test."""
    folder = tmp_path_factory.mktemp("data")
    for path in DEBIAN_DIR.glob("*.gz"):
        count = 256 if path.name.startswith("t10k") else 1536
        data = gzip.decompress(path.read_bytes())
        header, size = (16, 784) if "images" in path.name else (8, 1)
        cut = data[:4] + count.to_bytes(4, "big") + data[8 : header + count * size]
        (folder / path.name).write_bytes(gzip.compress(cut, 1))
    return folder


@pytest.fixture
def run(data_dir, tmp_path):
    """A function that trains on real ranks and returns what they left; fails if one fails."""
    count = 0

    def start(world_size, *flags, environ=None):
        nonlocal count
        count += 1
        run_dir = tmp_path / f"run{count}"
        run_dir.mkdir()
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
            rank.join(60)
            rank.kill()
        failed = [n for n, rank in enumerate(ranks) if rank.exitcode != 0]
        if failed:
            raise AssertionError("".join((run_dir / f"log{n}").read_text() for n in failed))
        return Ranks(run_dir, world_size)

    return start


def _train_and_exit(flags, environ, run_dir):
    rank = environ["RANK"]
    log = (run_dir / f"log{rank}").open("w", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    code = 1
    try:
        torch.set_default_dtype(getattr(torch, environ.get("DEFAULT_DTYPE", "float32")))
        model = train(parse_config(flags, environ))
        torch.save(flatten(list(model.parameters())), run_dir / f"parameters{rank}.pt")
        code = 0
    except BaseException:
        traceback.print_exc(file=log)
    finally:
        sys.stdout.flush()
        os._exit(code)
