"""The program of test_same_losses.py: some steps of every strategy, with the exact losses.

python same_losses.py             # under cluster.launch or torchrun; rank 0 prints {strategy: [losses]} as JSON
"""

import json
import os
import time
import zlib

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from node.accounting.metrics import Clock
from node.base.options import parse_settings
from node.dist.comm import Comm
from node.dist.process_group import process_group
from node.dist.rank_env import read_rank_env
from node.strategies import strategy_class

STEPS, BATCH, SEED = 4, 8, 1
SETTINGS = {
    "ddp": "overlap=true bucket_mb=0.005",
    "fedavg": "H=2 server=adam",
    "localsgd": "H=2 start_after=1",
    "diloco": "H=2 codec=int8",
    "streaming-diloco": "H=4 fragments=2 tau=1",
    "eager-diloco": "H=2",
    "sparta": "p=0.1",
    "sparta-diloco": "H=2 p=0.1",
    "demo": "chunk=8 topk=2",
    "powersgd": "rank=2",
    "gossip": "graph=ring",
}


def main() -> None:
    """Train with each strategy in turn; rank 0 prints the results."""
    ranks = read_rank_env(os.environ)
    with process_group(ranks, torch.device("cpu"), timeout_s=120.0):
        comm = Comm(ranks, Clock(time.perf_counter()))
        found = {name: train(name, settings, comm) for name, settings in SETTINGS.items()}
    if ranks.rank == 0:
        print(json.dumps(found))


def train(name: str, settings: str, comm: Comm) -> list[str]:
    """Return the loss of this rank after each step, and a checksum of the parameters at the end."""
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    cls = strategy_class(name)
    strategy = cls(**parse_settings(name, cls, settings.split()))
    strategy.setup(model, optimizer, comm, SEED)
    drawn = torch.Generator().manual_seed(comm.rank)
    losses = []
    for step in range(1, STEPS + 1):
        inputs = torch.randn(BATCH, 64, generator=drawn)
        classes = torch.randint(5, (BATCH,), generator=drawn)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), classes)
        loss.backward()
        strategy.samples += BATCH
        strategy.step(step)
        losses.append(loss.item().hex())
    strategy.finish(STEPS)
    return [*losses, f"{zlib.crc32(strategy.flat_parameters().numpy().tobytes()):08x}"]


if __name__ == "__main__":
    main()
