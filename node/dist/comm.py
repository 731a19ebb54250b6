"""Collectives that count the bytes and seconds they take.

Bytes are payload, counted as the algorithm sends them (node/accounting/gloo_traffic.py); headers and ACKs are not
included.
"""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from node.accounting import gloo_traffic
from node.accounting.gloo_traffic import Flow
from node.accounting.ledger import Ledger
from node.accounting.metrics import Clock
from node.dist.codec import HALVES, ROW, dequantise, quantise
from node.dist.flat import flatten, unflatten_into
from node.dist.pending import Pending
from node.dist.rank_env import RankEnv

PURPOSES = ("train", "eval", "control")


class Comm:
    """The collectives of one rank. With world size 1 they do nothing and cost nothing.

    All of them raise RuntimeError if another rank has died, or did not answer within the timeout. (Of one death in
    some forty gloo reports nothing: then, too, the timeout applies. Launchers do not wait for it.) Methods named
    `start_…` return a function that waits for the end: whatever happens until it is called overlaps with the
    collective. Only waiting counts as seconds of comm, or of eval if that is the purpose.

    Attributes:
        rank: this rank.
        world_size: number of ranks.
        neighbours: the ranks to which this rank's node has a link of its own; empty: all.
        sent_bytes: payload bytes that this rank has sent, by purpose.
        collectives: the number of collectives in which this rank took part.
        ledger: the record of each of them.
    """

    def __init__(self, ranks: RankEnv, clock: Clock) -> None:
        self.rank = ranks.rank
        self.world_size = ranks.world_size
        self.neighbours = ranks.neighbours
        self.sent_bytes = dict.fromkeys(PURPOSES, 0)
        self.collectives = 0
        self.ledger = Ledger()
        self._clock = clock
        # If a gloo worker thread is the last to release a tensor, it needs Python's lock for that, and
        # destroy_process_group waits for the thread with the lock held: 1 run in 80 hung at its very end on a busy
        # machine (torch 2.6). So the latest tensors live as long as this object.
        self._latest: deque[Sequence[Tensor]] = deque(maxlen=4)

    def packing(self) -> AbstractContextManager[None]:
        """Count the time of packing as strategy: needed in a backward pass; the time of `step` is counted anyway."""
        return self._clock.measure("strategy")

    @contextmanager
    def varying_sizes(self) -> Iterator[None]:
        """Account for what is started meanwhile together, whatever its size: for tensors of another size each step."""
        self.ledger.sizes_vary = True
        try:
            yield
        finally:
            self.ledger.sizes_vary = False

    def average(self, tensors: Sequence[Tensor], purpose: str = "train") -> Tensor:
        """Replace every tensor by its mean over all ranks, in one all-reduce.

        Args:
            tensors: of one dtype and device; the same shapes in the same order on every rank.
            purpose: one of PURPOSES.

        Returns:
            The means as one flat tensor that nothing else refers to.
        """
        flat = flatten(tensors)
        self.all_reduce(flat, purpose=purpose)
        flat /= self.world_size
        unflatten_into(flat, tensors)
        return flat

    def start_average(self, flat: Tensor, codec: str = "none") -> Callable[[], Tensor]:
        """Start to average a flat tensor; the returned function waits for the mean, a new tensor.

        Args:
            flat: shape (elements,), the same on every rank; not modified.
            codec: the format in transit, one of node.strategies.base.CODECS. With world size 1 nothing is sent.
        """
        if self.world_size == 1:
            return Pending(flat.clone)
        if codec == "int8":
            return self._start_int8_average(flat)
        # Sums of half-precision numbers could overflow, so shares are added instead.
        wire = (flat / self.world_size).to(HALVES.get(codec, flat.dtype))
        wait = self.start_all_reduce(wire)

        def mean() -> Tensor:
            wait()
            return wire.to(flat.dtype)

        return Pending(mean)

    def _start_int8_average(self, flat: Tensor) -> Callable[[], Tensor]:
        """Start an average: every rank adds up its part of all ranks' numbers, and sends the mean to all (codec.py)."""
        rows = -(-len(flat) // (self.world_size * ROW))  # rows that one rank adds up
        padded = flat.new_zeros(self.world_size * rows * ROW)
        padded[: len(flat)] = flat
        wait = self.start_all_to_all(quantise(padded).view(self.world_size, -1))

        def mean() -> Tensor:
            parts = dequantise(wait(), flat.dtype).view(self.world_size, -1)
            everyone = self.all_gather(quantise(parts.mean(0)))
            return dequantise(everyone, flat.dtype)[: len(flat)]

        return Pending(mean)

    def all_reduce(
        self, tensor: Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM, purpose: str = "train"
    ) -> None:
        """Reduce a tensor over all ranks, in place."""
        self.start_all_reduce(tensor, op, purpose)()

    def start_all_reduce(
        self, tensor: Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM, purpose: str = "train"
    ) -> Callable[[], None]:
        """Start to reduce a tensor over all ranks, in place; the returned function waits for it."""
        flow = gloo_traffic.all_reduce(
            self.rank, self.world_size, tensor.nbytes, tensor.element_size()
        )
        return self._start(
            lambda: [dist.all_reduce(tensor, op, async_op=True)], [tensor], flow, purpose
        )

    def all_gather(self, tensor: Tensor, purpose: str = "train") -> Tensor:
        """Gather every rank's tensor of shape (elements,), any dtype, as one of shape (ranks, elements)."""
        everyone = tensor.new_empty(self.world_size * len(tensor))
        if self.world_size == 1:
            return tensor.clone().unsqueeze(0)
        mine, into = tensor.view(torch.uint8), everyone.view(torch.uint8)
        self._start(
            lambda: [dist.all_gather_into_tensor(into, mine, async_op=True)],
            [into, mine],
            gloo_traffic.all_gather(self.rank, self.world_size, tensor.nbytes),
            purpose,
        )()
        return everyone.view(self.world_size, -1)

    def start_all_to_all(self, rows: Tensor, purpose: str = "train") -> Callable[[], Tensor]:
        """Start to send row i to rank i; the returned function waits for the rows sent to this rank.

        Args:
            rows: shape (ranks, elements), uint8.
            purpose: one of PURPOSES.
        """
        if self.world_size == 1:
            return Pending(rows.clone)
        arrived = torch.empty_like(rows)
        wait = self._start(
            lambda: [dist.all_to_all_single(arrived, rows, async_op=True)],
            [arrived, rows],
            gloo_traffic.all_to_all(self.rank, self.world_size, rows.nbytes),
            purpose,
        )

        def everything() -> Tensor:
            wait()
            return arrived

        return everything

    def exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor], purpose: str = "train"
    ) -> None:
        """Send a tensor to each of some ranks and fill one from each of some, all at once.

        Args:
            send: contiguous tensors by destination rank, which receives the same size.
            receive: contiguous tensors to fill, by source rank.
            purpose: one of PURPOSES.
        """
        out = {peer: tensor for peer, tensor in send.items() if tensor.numel()}
        into = {peer: tensor for peer, tensor in receive.items() if tensor.numel()}
        if not out and not into:
            return

        def begin() -> list[Any]:
            # All in one batch: started one by one they hang on nccl, which completes each before the next.
            parts = [dist.P2POp(dist.irecv, tensor, peer) for peer, tensor in into.items()]
            parts += [dist.P2POp(dist.isend, tensor, peer) for peer, tensor in out.items()]
            works: list[Any] = dist.batch_isend_irecv(parts)
            return works

        flow = gloo_traffic.exchange(
            {peer: tensor.nbytes for peer, tensor in out.items()},
            {peer: tensor.nbytes for peer, tensor in into.items()},
        )
        self._start(begin, [*into.values(), *out.values()], flow, purpose)()

    def sum_among(self, flat: Tensor, members: Sequence[int], receivers: Sequence[int]) -> None:
        """Sum a flat tensor over some ranks, in place, and send the sum to some ranks.

        Every member sums one slice and sends it to all receivers: 2 hops. For S bytes, a member sends (M-1)/M · S,
        and 1/M · S to each receiver but itself; others send nothing. If all ranks are both, it is an all-reduce.

        Args:
            flat: shape (elements,), the same on every rank.
            members: the ranks that contribute, in the same order on every rank.
            receivers: the ranks on which `flat` is the sum afterwards.
        """
        if len(members) == len(receivers) == self.world_size:
            self.all_reduce(flat)
            return
        slices = dict(zip(members, flat.tensor_split(len(members)), strict=True))
        mine = slices.pop(self.rank, None)
        others = [r for r in receivers if r != self.rank]
        if mine is not None:
            parts = {member: torch.empty_like(mine) for member in slices}
            self.exchange(slices, parts)
            parts[self.rank] = mine.clone()
            mine.zero_()
            for member in members:  # in one order, so that the sum does not depend on the rank
                mine += parts[member]
        self.exchange(
            dict.fromkeys(others, mine) if mine is not None else {},
            slices if self.rank in receivers else {},
        )

    def are_equal(self, values: Sequence[bytes], device: torch.device, purpose: str) -> list[bool]:
        """Return for each value whether all ranks hold the same bytes, by 16 bytes of checksums.

        Args:
            values: the same number in the same order on every rank.
            device: the device that the process group needs for its tensors.
            purpose: one of PURPOSES.
        """
        sums = [zlib.crc32(value) for value in values]
        extremes = torch.tensor([sums, [-s for s in sums]], device=device)
        self.all_reduce(extremes, dist.ReduceOp.MAX, purpose=purpose)
        highest, lowest = extremes[0].tolist(), (-extremes[1]).tolist()
        return [a == b for a, b in zip(highest, lowest, strict=True)]

    def require_equal(self, values: Mapping[str, bytes], device: torch.device) -> None:
        """Check that all ranks hold the same bytes, by 16 bytes of checksums for each value.

        Args:
            values: by name; the same names in the same order on every rank.
            device: the device that the process group needs for its tensors.

        Raises:
            RuntimeError: some differ; names them.
        """
        equal = self.are_equal(list(values.values()), device, purpose="control")
        differ = [name for name, same in zip(values, equal, strict=True) if not same]
        if differ:
            raise RuntimeError(
                f"the ranks differ in their {' and '.join(differ)}: "
                "start all of them with the same options and the same torch"
            )

    def _start(
        self, begin: Callable[[], list[Any]], tensors: Sequence[Tensor], flow: Flow, purpose: str
    ) -> Callable[[], None]:
        """Start a collective and count it; the returned function waits until it is done."""
        if self.world_size == 1:
            return lambda: None
        self._latest.append(tensors)
        self.sent_bytes[purpose] += flow.sent_bytes
        self.collectives += 1
        entry = self.ledger.begin(flow, purpose)
        works = begin()

        def wait() -> None:
            hidden = all(work.is_completed() for work in works)
            with self._clock.measure("eval" if purpose == "eval" else "comm"):
                waits_since = time.perf_counter()
                for work in works:
                    work.wait()
                if tensors[0].is_cuda:
                    torch.cuda.synchronize()  # nccl has only queued it
                self.ledger.end(entry, waits_since, hidden=hidden)

        return wait
