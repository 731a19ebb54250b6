"""The ledger of one rank's collectives: a line for each, and sums that stay exact for any number of them."""

import os
import time
from dataclasses import dataclass, field

from node.accounting.gloo_traffic import Flow
from node.accounting.tcp_state import LEAST_BYTES, TcpChange, TcpSockets, TcpState, changes
from protocol.collectives import MOST_COLLECTIVES, CollectiveSum, Traffic

MAX_LINES = MOST_COLLECTIVES  # 7 MB for a rank that sends to one other
NOTE_NAME, NOTE_BYTES = "gradwire-collective", 160


@dataclass
class Entry:
    """One collective of this rank, in progress.

    Attributes:
        began_at: when it was started, Unix time.
        began_s: the same by time.perf_counter.
        sizes_vary: whether others of its kind and purpose differ in size, step by step.
        done_s: seconds from its start until it was known to be done.
        waited_s: seconds of those in which the rank only waited for it.
        hidden: whether it was done before the rank waited for it; if so, it took `done_s` or less.
        tcp_before: this process's sockets when it was started.
        tcp: what they did for it (tcp_state.py), by the peer's address.
    """

    flow: Flow
    purpose: str
    step: int
    began_at: float
    began_s: float
    sizes_vary: bool = False
    done_s: float = 0.0
    waited_s: float = 0.0
    hidden: bool = False
    tcp_before: dict[int, TcpState] = field(default_factory=dict)
    tcp: dict[str, TcpChange] = field(default_factory=dict)

    def line(self) -> dict[str, object]:
        """Return its line, as in docs/formats.md."""
        flow = self.flow
        values = {
            "time": round(self.began_at, 6),
            "step": self.step,
            "kind": flow.kind,
            "purpose": self.purpose,
            "bytes": flow.size,
            "sent_bytes": flow.sent_bytes,
            "hops": flow.hops,
            "messages": flow.messages,
            "to": flow.to,
            "done_s": round(self.done_s, 6),
            "waited_s": round(self.waited_s, 6),
            "hidden": self.hidden,
        }
        values |= {"sizes_vary": True} if self.sizes_vary else {}
        values |= {"sources": flow.sources} if flow.kind == "exchange" else {}
        return values | ({"tcp": self.tcp} if self.tcp else {})


@dataclass
class Sum:
    """All collectives of one kind, purpose and size, or of all that vary in size."""

    count: int = 0
    size_bytes: int = 0  # of all together
    done_s: float = 0.0
    waited_s: float = 0.0
    to: dict[int, list[int]] = field(default_factory=dict)  # rank -> [bytes, messages]

    def add(self, entry: Entry) -> None:
        """Add one collective."""
        self.count += 1
        self.size_bytes += entry.flow.size
        self.done_s += entry.done_s
        self.waited_s += entry.waited_s
        for peer, count in entry.flow.to.items():
            sent = self.to.setdefault(peer, [0, 0])
            sent[0] += count
            sent[1] += entry.flow.messages


class Note:
    """The collective that the rank is in, for node/supervisor/rank_states.py, which looks from outside while it hangs.

    It is an open file without a name: readable through /proc, and gone with the process. Systems without such files
    (macOS) have no supervisor that looks.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create(NOTE_NAME) if hasattr(os, "memfd_create") else None
        self._everyones = self._under_way = 0
        self._latest = ""

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def begin(self, entry: Entry) -> None:
        """Note that a collective starts."""
        flow = entry.flow
        self._everyones += flow.kind != "exchange"  # an exchange is for some ranks only
        self._under_way += 1
        self._latest = f"{flow.kind} {flow.size} {entry.purpose} {entry.step} {entry.began_at:.3f}"
        self._write()

    def end(self) -> None:
        """Note that one is done."""
        self._under_way -= 1
        self._write()

    def _write(self) -> None:
        if self._file is not None:
            words = f"{self._everyones} {self._under_way} {self._latest}"
            os.pwrite(self._file, words.ljust(NOTE_BYTES).encode(), 0)


class Ledger:
    """The record of a rank's collectives.

    Attributes:
        step: the training step in progress; 0 before the first.
        sizes_vary: whether collectives that begin now are among those that vary in size.
    """

    def __init__(self) -> None:
        self.step = 0
        self.sizes_vary = False
        # by kind, purpose and size; None if it varies
        self._sums: dict[tuple[str, str, int | None], Sum] = {}
        self._lines: list[dict[str, object]] = []
        self._taken = 0
        self._note = Note()
        self._sockets = TcpSockets()

    def begin(self, flow: Flow, purpose: str) -> Entry:
        """Record that a collective starts now."""
        before = self._sockets.read() if self._has_room else {}
        entry = Entry(flow, purpose, self.step, time.time(), time.perf_counter(), self.sizes_vary)
        entry.tcp_before = before
        self._note.begin(entry)
        return entry

    def end(self, entry: Entry, waits_since: float, *, hidden: bool) -> None:
        """Record that it is done now; the rank has waited for it since `waits_since`, by time.perf_counter."""
        now = time.perf_counter()
        entry.done_s, entry.waited_s = now - entry.began_s, now - waits_since
        entry.hidden = hidden
        self._note.end()
        size = None if entry.sizes_vary else entry.flow.size
        key = (entry.flow.kind, entry.purpose, size)
        self._sums.setdefault(key, Sum()).add(entry)
        if self._has_room:
            entry.tcp = self._tcp_of(entry)
            self._lines.append(entry.line())

    @property
    def _has_room(self) -> bool:
        """Whether there is room for one more line."""
        return self._taken + len(self._lines) < MAX_LINES

    def _tcp_of(self, entry: Entry) -> dict[str, TcpChange]:
        """Return what TCP did for a collective that has ended; empty if it is too small to tell."""
        if entry.flow.sent_bytes < LEAST_BYTES:
            return {}
        told = changes(entry.tcp_before, self._sockets.read())
        peers = [peer for peer, count in entry.flow.to.items() if count >= LEAST_BYTES]
        if len(told) < len(peers):  # over a new connection; also if ranks share an address
            self._sockets.forget()
        return told

    def take_lines(self) -> list[dict[str, object]]:
        """Return the lines of the collectives that have ended since the last call."""
        lines, self._lines = self._lines, []
        self._taken += len(lines)
        return lines

    def sums(self) -> list[CollectiveSum]:
        """Return the sums of all of them so far."""
        return [
            CollectiveSum(
                kind,
                purpose,
                round(one.size_bytes / one.count),
                one.count,
                waited_s=round(one.waited_s, 6),
                to={peer: Traffic(b, m) for peer, (b, m) in one.to.items()},
                done_s=round(one.done_s, 6),
                sizes_vary=size is None,
            )
            for (kind, purpose, size), one in self._sums.items()
        ]
