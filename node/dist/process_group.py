"""Joins the process group, and leaves it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import rendezvous

from node.dist.rank_env import RankEnv


@contextmanager
def process_group(ranks: RankEnv, device: torch.device, timeout_s: float) -> Iterator[None]:
    """Join the other ranks (gloo; nccl on GPUs), and leave them at the end. With world size 1, do nothing.

    Raises:
        RuntimeError: not all ranks joined within the timeout, or some have GPUs and others do not.
    """
    if ranks.world_size == 1:
        yield
        return
    # By environment: only that also works with the store that torchrun's agent has opened.
    os.environ["MASTER_ADDR"] = ranks.master_addr
    os.environ["MASTER_PORT"] = str(ranks.master_port)
    # Debian's torch lacks libuv, torch's default for the store; the plain store works everywhere.
    os.environ.setdefault("USE_LIBUV", "0")
    timeout = timedelta(seconds=timeout_s)
    joining = rendezvous("env://", ranks.rank, ranks.world_size, timeout=timeout)
    store, rank, world_size = next(joining)
    store.set_timeout(timeout)
    _agree_on_device(store, rank, device.type)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore("default_pg", store),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def _agree_on_device(store: dist.Store, rank: int, kind: str) -> None:
    """Refuse devices of two kinds: nccl and gloo cannot talk to each other, and would wait until the timeout."""
    first = store.compare_set("gradwire/device", "", f"{kind} of rank {rank}").decode()
    if first.split()[0] != kind:
        raise RuntimeError(
            f"rank {rank} would train on {kind}, but others on {first}: give every node a GPU (--gpus all), or none"
        )
