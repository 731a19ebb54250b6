"""Features of newer torch: sharded training, pipelines, libuv; those that the image's torch lacks are skipped."""

import json
import re

import pytest
from containers import PROJECT_DIR, bring_up

PIPELINE = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # every rank knows all layers, and holds its own in the pipeline
layers = [nn.Linear(8, 8) for _ in range(size)]
x, y = torch.randn(16, 8), torch.randn(16, 8)

stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank == size - 1 else {}))
piped = layers[rank].weight.grad.clone()

layers[rank].zero_grad()
nn.functional.mse_loss(nn.Sequential(*layers)(x), y).backward()
alone = layers[rank].weight.grad
factor = piped.norm() / alone.norm()  # 1, or where torch sums over micro-batches their number
assert min(abs(factor - 1), abs(factor - 4)) < 1e-4 and torch.allclose(piped, factor * alone, atol=1e-6)
print("gradients as without a pipeline", flush=True)
dist.destroy_process_group()
"""

STORE = """\
import os
import torch.distributed as dist
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
while not hasattr(store, "libuvBackend"):
    store = store.underlying_store
print("libuv", store.libuvBackend, os.environ["USE_LIBUV"], flush=True)
dist.barrier()
dist.destroy_process_group()
"""


# Decides which tests can run; asked once, because importing torch takes seconds. FSDP2 calls `record_event` on the
# streams of any device: those of the CPU have it from torch 2.7 on. Only opening a store shows whether torch has
# libuv.
ASK = """\
import json, torch
from torch.distributed import TCPStore
try:
    TCPStore("localhost", 0, is_master=True, use_libuv=True)
    libuv = True
except RuntimeError as error:
    assert "without libuv support" in str(error), error
    libuv = False
stage = open(torch.__path__[0] + "/distributed/pipelining/stage.py").read()
print(json.dumps({
    "version": torch.__version__,
    "fsdp2": hasattr(torch.cpu.Stream, "record_event"),
    "libuv": libuv,
    "opens a pipeline by 8 bytes": "recv_tensor = torch.zeros(1, device=self.device)" in stage,
}))
"""


@pytest.fixture(scope="module")
def nodes_torch(shared):
    """The version and features of the nodes' torch."""
    bring_up(shared)
    return json.loads(shared.exec("node1", "python3", "-c", ASK).splitlines()[-1])


def test_every_rank_holds_its_share_and_learns(nodes_torch, unshaped):
    if not nodes_torch["fsdp2"]:
        pytest.skip(
            f"torch {nodes_torch['version']} in the image has no FSDP2 on the CPU: "
            "python -m cluster.image --torch 2.9.1 --torchvision 0.24.1"
        )
    done = unshaped.run("launch", "--", PROJECT_DIR / "examples" / "fsdp2.py")
    held = re.findall(r"holds (\d+) of (\d+) parameters", done.stdout)
    whole = {int(total) for _, total in held}
    assert len(held) == 3 and len(whole) == 1
    assert sum(int(share) for share, _ in held) == whole.pop()
    assert max(int(share) for share, _ in held) < 0.4 * int(held[0][1])
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert (
        len(losses) == 5 and losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
    )


@pytest.mark.slow
def test_a_torch_without_fsdp2_is_told_in_one_line(nodes_torch, unshaped):
    if nodes_torch["fsdp2"]:
        pytest.skip("the image's torch has FSDP2 on the CPU")
    said = unshaped.run("launch", "--", PROJECT_DIR / "examples" / "fsdp2.py", check=1).stderr
    assert "has no FSDP2 on the CPU: 2.7 or newer has" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_pipeline_of_three_nodes_has_the_gradients_of_one_process(
    nodes_torch, unshaped, tmp_path
):
    if nodes_torch["opens a pipeline by 8 bytes"]:
        pytest.skip(
            f"torch {nodes_torch['version']} opens a pipeline by sending 8 bytes to who "
            "receives 4, which gloo refuses: mended after 2.9 (pytorch PR 165539)"
        )
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    done = unshaped.run("launch", "--", script)
    assert done.stdout.count("gradients as without a pipeline") == 3


def test_ranks_meet_on_libuv_where_torch_has_it(nodes_torch, unshaped, tmp_path):
    script = tmp_path / "store.py"
    script.write_text(STORE)
    done = unshaped.run("launch", "--", script)
    has = nodes_torch["libuv"]
    assert done.stdout.count(f"libuv {has} {int(has)}") == 3
