"""Tests that the image has all that torch's distributed modules import: Debian's packages lack some of it."""

import json
import os
import subprocess
import sys

import torch

OPTIONAL = {"etcd"}  # an old rendezvous backend that nothing else imports
WALK = """\
import importlib, json, pkgutil, sys
import torch

failed = {}
def see(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        failed[name] = error.name or str(error)
    except ImportError as error:
        failed[name] = str(error)

def walk(name):
    module = see(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
        if not found.name.rpartition(".")[2].startswith("_"):
            walk(found.name)

for name in sys.argv[1:]:
    walk(name)
print(json.dumps({"failed": failed, "tried": sum(m.startswith("torch.distributed.") for m in sys.modules)}))
"""
# Private modules, but used to test distributed programs as torch's own tests do.
TEST_TOOLS = (
    "torch.testing._internal.common_utils",
    "torch.testing._internal.common_distributed",
    "torch.testing._internal.common_fsdp",
    "torch.testing._internal.distributed._tensor.common_dtensor",
    "torch.testing._internal.distributed.checkpoint_utils",
)


def walk(*names):
    """Import modules and all public modules below them in a new process; return what failed, and why."""
    argv = [sys.executable, "-W", "ignore", "-c", WALK, *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    found["failed"] = {k: v for k, v in found["failed"].items() if v not in OPTIONAL}
    return found


def test_every_public_distributed_module_can_be_imported():
    found = walk("torch.distributed", "torch.utils.cpp_extension", "torch.utils.data")
    assert not found["failed"]
    assert found["tried"] > 100


def test_torchs_own_test_tools_can_be_imported():
    """In one process: importing torch for each would take longer than the modules do."""
    assert not walk(*TEST_TOOLS)["failed"]


def test_the_store_is_told_whether_torch_has_libuv():
    """PyPI's torch has libuv, Debian's does not, and raises only when a store opens."""
    from torch.distributed import TCPStore

    try:
        TCPStore("localhost", 0, is_master=True, use_libuv=True)
        has_libuv = True
    except RuntimeError:
        has_libuv = False
    assert os.environ["USE_LIBUV"] == str(int(has_libuv)), torch.__version__
