"""One folder for all ranks, for checkpoints that they write together: torch.distributed.checkpoint requires it."""

import json

import pytest
from containers import last_run

# Each rank writes its rows and reads columns, of which every rank has written a part.
CHECKPOINT = """\
import os, pathlib, time, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor, zeros

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
whole = torch.arange(36.0).reshape(6, 6)
folder = pathlib.Path(os.environ["GRADWIRE_SHARED_DIR"])
dcp.save({"weight": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder / "step-1")
state = {"weight": zeros(6, 6, device_mesh=mesh, placements=[Shard(1)])}
dcp.load(state, checkpoint_id=folder / "step-1")
rank = dist.get_rank()
assert torch.equal(state["weight"].to_local(), whole.chunk(3, 1)[rank]), state
kept = torch.ones(1)  # what is reduced last must outlive the group: docs/troubleshooting.md
dist.all_reduce(kept)
time.sleep(1)  # so that all have what they need of this rank
os._exit(0)  # torch 2.6 hung in destroy_process_group, one time in some hundred: docs/troubleshooting.md
"""
FILL = """\
import os, pathlib
folder = pathlib.Path(os.environ["GRADWIRE_SHARED_DIR"])
if os.environ["RANK"] == "0":
    (folder / "much").write_bytes(bytes(3_000_000))
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.slow
def test_ranks_write_a_checkpoint_together_which_comes_home_and_leaves_the_nodes(unshaped, script):
    summary = unshaped.json("launch", "--shared", "--", script(CHECKPOINT))
    run = last_run(unshaped, "script")
    parts = sorted(path.name for path in (run / "shared" / "step-1").iterdir())
    assert parts == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
    assert summary["not_fetched"] == {}
    assert unshaped.ssh("node2", "ls /shared").stdout == ""
    again = unshaped.json("launch", "-f", run, "--dry-run")
    assert all("GRADWIRE_SHARED_DIR" in environ for environ in again["environment"].values())


def test_who_does_not_ask_for_it_has_none(unshaped, script):
    unshaped.run(
        "launch", "--", script("import os; assert 'GRADWIRE_SHARED_DIR' not in os.environ")
    )
    assert not (last_run(unshaped, "script") / "shared").exists()


def test_more_than_may_be_fetched_stays_on_the_nodes_and_is_told(unshaped, script):
    words = ("--shared", "--max-results", "1m", "--json")
    done = unshaped.run("launch", *words, "--", script(FILL), check=1)
    run = last_run(unshaped, "script")
    assert "their shared folder could not be fetched" in done.stderr
    assert f"tar -C /shared/{run.name} -c ." in done.stderr
    assert json.loads(done.stdout)["exit_codes"]["node1"] == 0
    there = unshaped.ssh("node3", f"stat --format %s /shared/{run.name}/much").stdout
    assert (int(there), (run / "shared").exists()) == (3_000_000, False)
    said = unshaped.run("launch", "--", script("print()")).stdout
    assert f"never fetched, they are in /shared/{run.name}" in said
    unshaped.ssh("node1", f"rm -r /shared/{run.name}")
