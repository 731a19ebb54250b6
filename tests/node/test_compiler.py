"""Tests that torch's compiler is imported only if something is compiled, and not by a rank that only trains."""

import os
import subprocess
import sys

import pytest

from node.strategies import STRATEGIES

HANGS_S = 300
TRAINS = """\
import sys
from node.strategies import STRATEGIES
from node.train import main

flags = sys.argv[1:]
for strategy in STRATEGIES:
    sys.argv[1:] = [*flags, "--strategy", strategy]
    main()
    late = [name for name in ("sympy", "torch._decomp", "torch._refs") if name in sys.modules]
    print(strategy, late, type(sys.modules["torch._dynamo"]).__name__)
"""
# Both kinds of optimizer functions that use the compiler; then what a user's task may do.
COMPILES = """\
import sys
from node.training.compiler import defer_compiler, defer_meta_kernels

defer_meta_kernels()
import torch

defer_compiler()
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
batch = torch.ones(2, 4)

def step(model):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

step(layer)
assert "sympy" not in sys.modules and "torch._decomp" not in sys.modules
{asks}
shape = torch.nn.Conv2d(3, 4, 2, device="meta")(torch.empty(5, 3, 6, 6, device="meta")).shape
assert shape == (5, 4, 5, 5)
assert "sympy" in sys.modules and torch._dynamo is sys.modules["torch._dynamo"]
step(layer)
disabled = torch.optim.Optimizer.zero_grad.__wrapped__.__dict__["__dynamo_disable"]
print(disabled is torch.optim.Optimizer.zero_grad.__wrapped__)
"""
ASKS = {
    "compiles a model": (
        "compiled = torch.compile(layer, backend='eager'); step(compiled); "
        "assert torch.equal(compiled(batch), layer(batch))"
    ),
    "imports a part": "from torch._dynamo import config; assert config.cache_size_limit",
}


def python(program, *words):
    """Return what a new Python prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GRADWIRE_")}
    argv = [sys.executable, "-c", program, *words]
    done = subprocess.run(argv, env=clean, capture_output=True, text=True, timeout=HANGS_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
def test_no_strategy_s_rank_imports_it(data_dir, tmp_path):
    flags = ("--data-dir", data_dir, "--run-dir", tmp_path, "--steps", 3, "--checkpoint-every", 2)
    said = python(TRAINS, *map(str, flags))
    assert [line for line in said if "Compiler" in line or "module" in line] == [
        f"{strategy} [] DeferredCompiler" for strategy in STRATEGIES
    ]


@pytest.mark.slow
@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_who_compiles_gets_the_real_one(asks):
    *_, said = python(COMPILES.format(asks=asks))
    assert said == "False"  # the optimizer's functions are still excluded from compilation
