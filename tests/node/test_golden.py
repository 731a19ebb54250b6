"""Tests that refactoring changes no number: losses of a fixed seed equal those in golden.json.

After a change that is meant to change them, write them anew and look at the difference:

    WRITE_GOLDEN=1 python3 -m pytest tests/node/test_golden.py

(in the node image, with the checkout writable). They are computed in double precision: different vector units sum in
different orders, and Adam amplifies the difference with each step. In single precision a CPU with AVX2 and one with
AVX-512 differ by 6e-4 after eight steps; in double precision the difference is far below the tolerance.
"""

import json
import os
from pathlib import Path

import pytest

from node.strategies import STRATEGIES

GOLDEN = Path(__file__).parent / "golden.json"
RUNS = {
    "alone adamw": (1, "--steps", "8"),
    "ddp adamw": (3, "--steps", "8", "--strategy", "ddp"),
    "language": (2, "--steps", "8", "--task", "language"),
    "dirichlet": (3, "--steps", "8", "--shard", "dirichlet", "--set", "H=3"),
    "fedavg sgd": (3, "--steps", "8", "--strategy", "fedavg", "--set", "H=3", "--optimizer", "sgd"),
}
# All strategies on the tiny model, with everything that they do in 9 steps on 3 ranks.
TINY = {
    "ddp": "bucket_mb=0.005 overlap=yes",
    "fedavg": "H=2 mu=0.1 server=adam fraction=0.7",
    "localsgd": "H=2 start_after=4",
    "diloco": "H=4",
    "streaming-diloco": "H=4 fragments=2 tau=1",
    "eager-diloco": "H=2 outer_lr=0.7 codec=int8",
    "sparta": "p=0.1",
    "sparta-diloco": "H=4 p=0.1 selector=partition",
    "demo": "topk=16",
    "powersgd": "rank=2",
    "gossip": "graph=exponential global_every=4",
}


def test_every_strategy_has_golden_losses():
    assert TINY.keys() == STRATEGIES.keys()


@pytest.mark.parametrize("strategy", TINY)
def test_losses_of_a_strategy_are_golden(tiny, strategy):
    rank = tiny(3, strategy, TINY[strategy], steps=9, optimizer="adamw", lr=0.01)[0]
    check(f"tiny {strategy}", [*rank["losses"], sum(map(abs, rank["parameters"]))])


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_golden(run, name):
    world_size, *flags = RUNS[name]
    ranks = run(world_size, "--batch-size", "16", *flags, environ={"DEFAULT_DTYPE": "float64"})
    tested = next(iter(ranks.end["tested"].values()))
    losses = [step["loss"] for step in ranks.of("step")] + [tested]
    check(name, losses)


def check(name, losses):
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(golden | {name: losses}, indent=1) + "\n")
        return
    assert losses == pytest.approx(golden[name], rel=1e-6)
