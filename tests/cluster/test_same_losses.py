"""Links change how long a training takes, but not what it learns: the losses are bit-identical."""

import json
import re
import shutil
from pathlib import Path

import pytest

from node.strategies import STRATEGIES

PROGRAM = Path(__file__).with_name("same_losses.py")


def losses_on(cluster, folder):
    """Return {strategy: losses and a checksum of the parameters}, as rank 0 printed them."""
    done = cluster.run("launch", "--no-verify", "--", folder / PROGRAM.name)
    found = re.search(r"node1 \| (\{.*\})", done.stdout)
    assert found, done.stdout
    return json.loads(found[1])


@pytest.mark.nightly
def test_every_strategy_learns_the_same_over_slow_links_as_over_fast_ones(shared, tmp_path):
    shutil.copy(PROGRAM, tmp_path)
    shared.run("up", "--nodes", "3", "--profile", "local")
    fast = losses_on(shared, tmp_path)
    shared.run("shape", "--profile", "wan")  # mobile was tried too (docs/LOG.md); it takes a minute
    slow = losses_on(shared, tmp_path)
    assert slow == fast
    assert fast.keys() == STRATEGIES.keys()
    assert len({tuple(losses) for losses in fast.values()}) == len(
        fast
    )  # and they differ between strategies
