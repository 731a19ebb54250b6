"""Joins the process group, and leaves it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from node.dist.rank_env import RankEnv


@contextmanager
def process_group(ranks: RankEnv, device: torch.device, timeout_s: float) -> Iterator[None]:
    """Join the other ranks (gloo; nccl on GPUs), and leave them at the end. With world size 1, do nothing.

    Raises:
        RuntimeError: not all ranks joined within the timeout.
    """
    if ranks.world_size == 1:
        yield
        return
    # By environment: only that also works with the store that torchrun's agent has opened.
    os.environ["MASTER_ADDR"] = ranks.master_addr
    os.environ["MASTER_PORT"] = str(ranks.master_port)
    # Debian's torch lacks libuv, torch's default for the store; the plain store works everywhere.
    os.environ.setdefault("USE_LIBUV", "0")
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
