"""Holds packets in the kernel and issues their verdicts when they are due: the Python path.

The reference for `node.wire.nfqueue.fast_path`, which does the same in C for queues whose packets need not be read.
"""

import heapq
import socket
from collections.abc import Collection
from time import monotonic, time

from node.wire.nfqueue.delay_line import AT_ONCE, FIRST, Behaviour, DelayLine, Downlink
from node.wire.nfqueue.injector import inject, open_injector
from node.wire.nfqueue.nfnetlink import (
    META,
    PACKET_HEAD,
    PACKET_TYPE,
    STAMP_HEAD,
    STAMPED_LENGTH,
    PacketVerdict,
    read_announcement,
    single_verdict_message,
    verdict_message,
)
from node.wire.nfqueue.queues import check_ownership, close_queue, open_queue
from node.wire.nfqueue.recvmmsg import BURST, Inbox

LATE_S = 1e-3
"""A packet released this long after it was due is late: more than the contract allows a round trip on top of 1 %."""
BUSY_LOOK_S = 1e-3
"""If packets arrive more often than this, arrivals do not wake us: that costs more than all other work for a packet.
The kernel has timestamped them, and we look when the next is due, or after this time."""
GRAIN_S, GRAIN_SHARE, MOST_GRAIN_S = 2e-4, 5e-3, 5e-4
"""The least time between two looks then: GRAIN_S or, if longer, this share of the shortest delay, at most the last.
Packets go within half of that before or after they are due."""
MORE_BURSTS = 7
"""Further bursts received at one look, if there are as many: some 1 ms of work."""
MAX_LEAD_S, LEAD_GAIN, UNLEARN_GAIN, LARGEST_ERROR_S = 1e-3, 0.1, 0.5, 2e-4
"""How much earlier than a packet is due we may begin to release it; the gains with which this grows and shrinks; the
largest error that is learnt from. It shrinks faster: a busy machine makes some packets late and others not, and what
makes up for the late ones would release the others early."""


class PythonPath:
    """All queues of a node: the lines of held packets, and which of them is due next."""

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink
        self._inbox = Inbox(netlink)
        self._copied = False  # whether more than the front of packets is copied to us
        self._shortest_s = 0.0  # minimum hold of a packet, except for one in ten thousand
        # When we last looked for packets; when there were some.
        self._looked_s = self._heard_s = 0.0
        self.is_busy = False
        self._lines: dict[int, DelayLine] = {}
        self._due: list[tuple[float, int]] = []  # a heap: one entry per line that holds anything
        self._buffer = bytearray(1 << 17)
        self._lead_s = 0.0
        self._downlink = Downlink(float("inf"), float("inf"))
        self._injector: socket.socket | None = None
        self.late = 0
        self.worst_late_s = 0.0

    def configure(self, queues: dict[int, Behaviour], downlink: tuple[float, float] | None) -> None:
        """Serve these queues and no others; those that stay keep what they hold.

        Args:
            queues: by number.
            downlink: bytes a second, and the longest wait in seconds.
        """
        self._downlink.change(*(downlink or (float("inf"), float("inf"))))
        self.keep(queues)
        self._open_all(queues)
        check_ownership(self._netlink, self._lines)

    def keep(self, queues: Collection[int]) -> None:
        """Give back all queues but these; the packets that they hold go at once."""
        for queue in self._lines.keys() - set(queues):
            self._close(queue)

    def change(self, queues: dict[int, Behaviour]) -> None:
        """Apply other rules to new packets of some queues; the other queues are not touched."""
        for queue in queues:
            if queue not in self._lines:
                raise KeyError(queue)
        self._open_all(queues)

    def _open_all(self, queues: dict[int, Behaviour]) -> None:
        for queue, behaviour in queues.items():
            self._open(queue, behaviour)
        behaviours = [line.behaviour for line in self._lines.values()]
        self._copied = any(behaviour.copied != META for behaviour in behaviours)
        self._shortest_s = min((one.shortest_s for one in behaviours), default=0.0)

    def _open(self, queue: int, behaviour: Behaviour) -> None:
        """Serve a queue, or apply new rules if it is served already."""
        if behaviour.duplicate and self._injector is None:
            self._injector = open_injector()
        line = self._lines.get(queue)
        open_queue(self._netlink, queue, behaviour, line.behaviour if line else None)
        if line:
            line.change(behaviour)
        else:
            self._lines[queue] = DelayLine(behaviour, self._downlink)

    def _close(self, queue: int) -> None:
        for verdict in self._lines.pop(queue).take_due(float("inf")):
            self._send(queue, verdict)
        self._due = [entry for entry in self._due if entry[1] != queue]
        heapq.heapify(self._due)
        close_queue(self._netlink, queue)

    def wait_s(self) -> float | None:
        """Return how long to wait unless a packet comes; None for ever. If busy, how long until the next look."""
        now = monotonic()
        until_due_s = self._due[0][0] - self._lead_s - now if self._due else None
        if not self.is_busy:
            return None if until_due_s is None else max(0.0, until_due_s)
        longest_s = min(BUSY_LOOK_S, self._shortest_s / 2)
        until_look_s = longest_s if until_due_s is None else min(until_due_s, longest_s)
        return max(0.0, until_look_s, self._looked_s + self._grain_s() - now)

    def _grain_s(self) -> float:
        return min(max(GRAIN_S, GRAIN_SHARE * self._shortest_s), MOST_GRAIN_S)

    def take_in(self) -> None:
        """Receive the packets that the kernel announces: a BURST, or more if we are busy and look seldom."""
        receive = self._take_in_whole if self._copied else self._take_in_fronts
        taken = receive()
        self._note(taken)
        for _ in range(MORE_BURSTS if self.is_busy else 0):
            if taken < BURST:
                break
            taken = receive()

    def _note(self, taken: int) -> None:
        """Learn from the number of packets that a look brought whether they follow closely on each other."""
        self._looked_s = now = monotonic()
        close = taken > 1 or now - self._heard_s < BUSY_LOOK_S
        self.is_busy = taken > 0 and close and self._shortest_s > 2 * GRAIN_S
        if taken:
            self._heard_s = now

    def _take_in_fronts(self) -> int:
        """Receive a BURST of packets of which only the arrival time is needed. Returns how many messages came."""
        count, fronts = self._inbox.take()
        lines, now = self._lines, monotonic()
        since_boot = now - time()  # the kernel stamps by the wall clock, which may be set
        for length, kind, queue, packet, head, seconds, microseconds in fronts:
            if kind != PACKET_TYPE or queue not in lines:
                continue  # a verdict came too late (the packet's device is gone), or the queue has been closed
            arrived = now
            if length == STAMPED_LENGTH and head == STAMP_HEAD:
                arrived = min(now, seconds + microseconds / 1e6 + since_boot)
            place = lines[queue].admit(packet, arrived)
            if place:
                self._place(queue, packet, place)
        return count

    def _take_in_whole(self) -> int:
        """Do the same message by message, if some have the content or the size of packets."""
        since_boot = monotonic() - time()
        for number in range(BURST):
            try:
                length = self._netlink.recv_into(self._buffer)
            except BlockingIOError:
                return number
            kind, queue, packet = PACKET_HEAD.unpack_from(self._buffer)
            if kind != PACKET_TYPE or queue not in self._lines:
                continue
            stamp, size, content = read_announcement(memoryview(self._buffer)[:length])
            arrived = monotonic() if stamp is None else min(monotonic(), stamp + since_boot)
            self._place(queue, packet, self._lines[queue].admit(packet, arrived, size, content))
        return BURST

    def _place(self, queue: int, packet: int, place: int) -> None:
        """Do what `admit` returned for a packet: note when it is due, or release it."""
        if place == FIRST:
            heapq.heappush(self._due, (self._lines[queue].next_due(), queue))
        elif place == AT_ONCE:
            self._netlink.send(single_verdict_message(queue, packet))

    def _send(self, queue: int, verdict: PacketVerdict) -> None:
        self._netlink.send(verdict_message(queue, verdict))
        if verdict.copy and self._injector is not None:
            inject(self._injector, verdict.copy)

    def taken(self) -> dict[int, tuple[int, int]]:
        """Return by queue how many packets arrived, and how many of them random loss dropped."""
        return {queue: (line.taken, line.lost) for queue, line in self._lines.items()}

    def release_due(self) -> float | None:
        """Send the verdicts on all packets that are due. Returns when the first of them was due; None if none was."""
        lead_s = self._grain_s() / 2 if self.is_busy else self._lead_s
        due, now = self._due, monotonic() + lead_s
        first = due[0][0] if due and due[0][0] <= now else None
        overdue = now - lead_s - LATE_S
        while due and due[0][0] <= now:
            since, queue = due[0]
            line = self._lines[queue]
            if since < overdue:
                self.late += line.count_due(overdue)
                self.worst_late_s = max(self.worst_late_s, overdue + LATE_S - since)
            for verdict in line.take_due(now):
                self._send(queue, verdict)
            if line.next_due() < float("inf"):
                heapq.heapreplace(due, (line.next_due(), queue))
            else:
                heapq.heappop(due)
        return first

    def learn(self, due: float) -> None:
        """Release earlier after a sleep, the later this packet went after one.

        This makes up for the time that waking up always takes; only a few packets go earlier than they are due.
        """
        error_s = min(max(monotonic() - due, -LARGEST_ERROR_S), LARGEST_ERROR_S)
        gain = LEAD_GAIN if error_s > 0 else UNLEARN_GAIN
        self._lead_s = min(max(self._lead_s + gain * error_s, 0.0), MAX_LEAD_S)
