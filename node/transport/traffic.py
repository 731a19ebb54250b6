"""Counts what one side has sent, by purpose and receiving rank, for a rank's accounts (protocol/metrics.py)."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.collectives import CollectiveSum
from protocol.collectives import Traffic as Sent

KIND = "message"


@dataclass
class Count:
    """The traffic for one purpose to one rank."""

    messages: int = 0
    frames: int = 0
    sent_bytes: int = 0


class Traffic:
    """Counts what is handed to the socket, including what is sent again after a connection broke."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], Count] = {}

    def add(self, purpose: str, rank: int, frames: Sequence[bytes]) -> None:
        """Count one message."""
        count = self._counts.setdefault((purpose, rank), Count())
        count.messages += 1
        count.frames += len(frames)
        count.sent_bytes += sum(map(len, frames))

    def include(self, other: "Traffic") -> None:
        """Add the counts of another socket."""
        for key, more in other._counts.items():
            count = self._counts.setdefault(key, Count())
            count.messages += more.messages
            count.frames += more.frames
            count.sent_bytes += more.sent_bytes

    def bytes_by_purpose(self) -> dict[str, int]:
        """Return the bytes sent so far to all ranks, by purpose."""
        total: dict[str, int] = {}
        for (purpose, _), count in self._counts.items():
            total[purpose] = total.get(purpose, 0) + count.sent_bytes
        return total

    def sums(self) -> list[CollectiveSum]:
        """Return sums like those of a ledger over collectives; `bytes` is the mean size of a message."""
        purposes = sorted({purpose for purpose, _ in self._counts})
        return [self._sum(purpose) for purpose in purposes]

    def _sum(self, purpose: str) -> CollectiveSum:
        own = {rank: count for (of, rank), count in self._counts.items() if of == purpose}
        messages = sum(count.messages for count in own.values())
        return CollectiveSum(
            KIND,
            purpose,
            sum(count.sent_bytes for count in own.values()) // max(1, messages),
            messages,
            waited_s=0.0,
            to={rank: Sent(count.sent_bytes, count.frames) for rank, count in own.items()},
        )
