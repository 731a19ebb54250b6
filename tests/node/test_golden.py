"""A refactoring changes no number: losses of a fixed seed are those in golden.json.

After a change that is meant to change them, write them anew and look at the difference:

    WRITE_GOLDEN=1 python3 -m pytest tests/node/test_golden.py

(in the node image, with the checkout writable). They are made in double precision: other vector units sum in
another order, which Adam makes larger with each step. In single precision a CPU with AVX2 and one with AVX-512 differ
by 6e-4 after eight steps; in double precision the difference is nowhere near the tolerance.
"""

import json
import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden.json"
RUNS = {
    "alone adamw": (1, "--steps", "8"),
    "ddp adamw": (3, "--steps", "8", "--strategy", "ddp"),
    "fedavg sgd": (3, "--steps", "8", "--strategy", "fedavg", "--set", "H=3", "--optimizer", "sgd"),
}


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_golden(run, name):
    world_size, *flags = RUNS[name]
    ranks = run(world_size, "--batch-size", "16", *flags, environ={"DEFAULT_DTYPE": "float64"})
    losses = [step["loss"] for step in ranks.of("step")] + [ranks.of("eval")[-1]["test_loss"]]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(golden | {name: losses}, indent=1) + "\n")
        return
    assert losses == pytest.approx(golden[name], rel=1e-6)
