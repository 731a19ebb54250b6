"""The process group, and collectives that count the bytes and seconds they take.

Bytes are payload, by each algorithm's own count: a ring all-reduce of S bytes over N ranks sends
2(N-1)/N · S from each of them, in 2(N-1) hops one after the other. gloo's traffic, measured on the
interfaces, is that to 1 %; headers and acknowledgements come on top.
"""

import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from node.config import Ranks
from node.metrics import Clock

PURPOSES = ("train", "eval", "control")


class Comm:
    """The collectives of one rank. Alone (world size 1) they do nothing and cost nothing.

    Attributes:
        world_size: number of ranks.
        sent_bytes: payload bytes this rank has sent, by purpose.
    """

    def __init__(self, world_size: int, clock: Clock) -> None:
        self.world_size = world_size
        self.sent_bytes = dict.fromkeys(PURPOSES, 0)
        self._clock = clock
        # A gloo worker thread that is the last to let go of a tensor needs Python's lock for it, and
        # destroy_process_group waits for that thread with the lock held: 1 run in 80 hung at its
        # very end on a busy machine (torch 2.6). So the latest tensors live as long as this object.
        self._latest: deque[Tensor] = deque(maxlen=4)

    def average(self, tensors: Sequence[Tensor]) -> Tensor:
        """Replace every tensor by its mean over all ranks, in one all-reduce.

        Args:
            tensors: of one dtype and device; the same shapes in the same order on every rank.

        Returns:
            The means as one flat tensor that nothing else refers to.
        """
        flat = flatten(tensors)
        self.all_reduce(flat)
        flat /= self.world_size
        unflatten_into(flat, tensors)
        return flat

    def all_reduce(
        self, tensor: Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM, purpose: str = "train"
    ) -> None:
        """Reduce a tensor over all ranks, in place.

        Raises:
            RuntimeError: another rank has died, or did not answer within the timeout.
        """
        if self.world_size == 1:
            return
        self._latest.append(tensor)
        with self._clock.measure("comm"):
            dist.all_reduce(tensor, op)
            if tensor.is_cuda:
                torch.cuda.synchronize()  # nccl has only queued it
        self.sent_bytes[purpose] += ring_bytes(tensor.nbytes, self.world_size)

    def require_equal(self, values: Mapping[str, bytes], device: torch.device) -> None:
        """Make sure that all ranks hold the same bytes, by 16 bytes of checksums for each value.

        Args:
            values: by name; the same names in the same order on every rank.
            device: where the process group wants its tensors.

        Raises:
            RuntimeError: some differ; names them.
        """
        sums = [zlib.crc32(value) for value in values.values()]
        extremes = torch.tensor([sums, [-s for s in sums]], device=device)
        self.all_reduce(extremes, dist.ReduceOp.MAX, purpose="control")
        highest, lowest = extremes[0].tolist(), (-extremes[1]).tolist()
        differ = [name for name, a, b in zip(values, highest, lowest, strict=True) if a != b]
        if differ:
            raise RuntimeError(
                f"the ranks differ in their {' and '.join(differ)}: "
                "start all of them with the same options and the same torch"
            )


def ring_bytes(size: int, world_size: int) -> int:
    """Payload bytes that one rank sends in a ring all-reduce of `size` bytes."""
    return round(2 * (world_size - 1) / world_size * size)


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of all tensors as one of shape (elements of all,)."""
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def unflatten_into(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the pieces of `flat` into tensors of the shapes it was made from."""
    pieces = flat.split([t.numel() for t in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.detach().copy_(piece.view_as(tensor))


def to_bytes(tensors: Sequence[Tensor]) -> bytes:
    """The values of all tensors, one after the other."""
    data: bytes = flatten(tensors).cpu().view(torch.uint8).numpy().tobytes()
    return data


@contextmanager
def process_group(ranks: Ranks, device: torch.device, timeout_s: float) -> Iterator[None]:
    """Meet the other ranks (gloo; nccl on GPUs), and leave them at the end. Alone: nothing.

    Raises:
        RuntimeError: they did not all come within the timeout.
    """
    if ranks.world_size == 1:
        yield
        return
    # By environment, as only that way also works with the store that torchrun's agent has opened.
    os.environ["MASTER_ADDR"] = ranks.master_addr
    os.environ["MASTER_PORT"] = str(ranks.master_port)
    # Debian's torch lacks libuv, torch's default for the store; the plain one works everywhere.
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
