"""Trains a model sharded over all ranks (FSDP2, on the CPU). A plain script, independent of gradwire.

    python -m cluster.launch --profile datacenter -- examples/fsdp2.py --layers 4 --width 256
    torchrun --nproc-per-node 3 examples/fsdp2.py

On the CPU it needs torch 2.7 or newer, Debian has 2.6: `python -m cluster.image --torch 2.9.1 --torchvision 0.24.1`.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()

if not hasattr(torch.cpu.Stream, "record_event"):  # FSDP2 calls it on every device
    raise SystemExit(f"torch {torch.__version__} has no FSDP2 on the CPU: 2.7 or newer has")


class Block(nn.Module):
    """A residual block of two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the output of the two layers to `x` [batch, width]."""
        return x + self.net(x)


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same parameters on every rank, before they are sharded

model = nn.Sequential(*(Block(args.width) for _ in range(args.layers)))
mesh = init_device_mesh("cpu", (world_size,))
for block in model:
    fully_shard(block, mesh=mesh)  # gathered just before it is used, and freed just after
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

whole = sum(p.numel() for p in model.parameters())
share = sum(p.to_local().numel() for p in model.parameters())
print(f"rank {rank} holds {share} of {whole} parameters", flush=True)

torch.manual_seed(1 + rank)  # each rank has its own samples
x = torch.randn(64, args.width)
for step in range(args.steps):
    started = time.perf_counter()
    loss = nn.functional.mse_loss(model(x), x.roll(1, dims=1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss := loss.detach())
    if rank == 0:
        seconds = time.perf_counter() - started
        print(f"step {step}  loss {loss.item() / world_size:.4f}  {seconds:.3f} s", flush=True)
dist.destroy_process_group()
