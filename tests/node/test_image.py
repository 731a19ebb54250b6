"""Tests that the image has all that torch's distributed modules import: Debian's packages lack some of it."""

import importlib
import os
import pkgutil
import sys
import warnings

import pytest
import torch

OPTIONAL = {"etcd"}  # an old rendezvous backend that nothing else imports
# Private modules, but used to test distributed programs as torch's own tests do.
TEST_TOOLS = (
    "torch.testing._internal.common_utils",
    "torch.testing._internal.common_distributed",
    "torch.testing._internal.common_fsdp",
    "torch.testing._internal.distributed._tensor.common_dtensor",
    "torch.testing._internal.distributed.checkpoint_utils",
)


def walk(*names):
    """Import modules and all public modules below them; return what failed, and why."""
    sys.argv = ["walk"]  # torch's test tools read the command line
    failed = {}
    with warnings.catch_warnings(action="ignore"):
        for name in names:
            _walk(name, failed)
    return {name: why for name, why in failed.items() if why not in OPTIONAL}


def _walk(name, failed):
    module = None
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        failed[name] = error.name or str(error)
    except ImportError as error:
        failed[name] = str(error)
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
        if not found.name.rpartition(".")[2].startswith("_"):
            _walk(found.name, failed)


# In processes that have torch, as importing it again takes as long as these modules do.
@pytest.mark.computes
def test_every_public_distributed_module_can_be_imported():
    assert not walk("torch.distributed", "torch.utils.cpp_extension", "torch.utils.data")
    assert sum(name.startswith("torch.distributed.") for name in sys.modules) > 100


@pytest.mark.computes
def test_torchs_own_test_tools_can_be_imported():
    assert not walk(*TEST_TOOLS)


def test_the_store_is_told_whether_torch_has_libuv():
    """PyPI's torch has libuv, Debian's does not, and raises only when a store opens."""
    from torch.distributed import TCPStore

    try:
        TCPStore("localhost", 0, is_master=True, use_libuv=True)
        has_libuv = True
    except RuntimeError:
        has_libuv = False
    assert os.environ["USE_LIBUV"] == str(int(has_libuv)), torch.__version__
