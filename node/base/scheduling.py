"""Scheduling priority for latency-critical processes: nice, timer slack, time slice, SCHED_DEADLINE."""

import ctypes
import gc
import os
import struct
import time
from contextlib import suppress
from typing import NamedTuple

SLICE_NS = 100_000
"""The shortest slice that the scheduler grants (kernel 6.12 and later); a shorter slice is scheduled sooner."""
NICE = -20
NORMAL, DEADLINE = 0, 6
"""Scheduling policies, as linux/sched.h numbers them."""
PERIOD_NS = 30_000_000
"""Long enough that `Reservation.look` gives up a share before it is used up."""
BUSY_LOOK_S, QUIET_LOOK_S = 0.005, 0.1
"""How often a process checks whether its share still suffices; whether it suffices again."""
PARTS = 1.0, 0.5, 0.25
"""Of the share that a thread wants, tried in turn; the last one also decides when it suffices again."""
PR_SET_TIMERSLACK = 29
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Numbers of the system call; the C library has no function for it."""


class Allowance(NamedTuple):
    """How much of the processors may be reserved; the kernel grants 95 % of them, to all threads together.

    Attributes:
        most: share of one processor, for one thread.
        together: share of all processors, for all threads of this kind in a cluster, one per node.
        least: a smaller share is useless: a thread that works for a moment has used it up, and must wait.
        full: the part of its share that a thread may use before it gives the share up.
    """

    most: float
    together: float
    least: float
    full: float


# Not more, so that the wires and pings of two clusters of three nodes have room on two processors (docs/LOG.md).
FOR_THE_WIRE = Allowance(most=0.2, together=0.8, least=0.0, full=1.0)
# A ping costs some 0.04 ms; inside user-mode Linux, on one processor, ten times that: more than its share there.
FOR_PINGS = Allowance(most=0.05, together=0.0675, least=0.025, full=0.8)
"""For each of a node's two threads that send pings, and that send them back."""


def renice(niceness: int) -> None:
    """Set the niceness of this thread, if permitted: a lower one needs the capability SYS_NICE."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def take_precedence() -> None:
    """Have this thread run at once when a packet is due, as far as the container permits; each step helps by itself.

    Measured with four busy loops at nice 19 on two cores, for an RTT of 50 ms: 51.3 ± 3.5 without, 50.3 ± 0.9 with.
    """
    renice(NICE)
    # How late the kernel may wake us to save power: 50,000 ns by default.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    _set_scheduler(NORMAL, SLICE_NS)


def disable_gc() -> None:
    """Disable the GC of a process without cycles: a pass over 100,000 held packets takes as long as a short delay."""
    gc.disable()
    gc.freeze()


class Reservation:
    """A share of a processor for this thread. Until it is used up, the thread takes precedence over all without one.

    Niceness counts only within a container: ranks of other nodes, however nice, have as much right to a processor as
    this node with its wire. A deadline counts everywhere, even if a CPU limit throttles the container. Measured with
    three nodes that train on two cores: round trips are 0.7 to 1.5 ms too long without it, 0.2 ms with it
    (docs/LOG.md). But a thread that has used up its share must wait, some ms at a time: a thread that needs more is
    better off without a share.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self.share = self._wanted = 0.0
        self._held = False
        self._looked_s, self._used_s = time.monotonic(), time.thread_time()

    def share_among(self, nodes: int) -> None:
        """Take as large a share as each of `nodes` nodes on this machine can have, or a part; none if all are refused.

        The kernel refuses without the capability SYS_NICE, in a container with processors of its own (cpuset), and if
        others have reserved too much.
        """
        together = self._allowance.together * (os.cpu_count() or 1)
        self._wanted = min(self._allowance.most, together / nodes)
        self._take()

    def look(self) -> None:
        """Give the share up if it is too small, and take it back if it is not."""
        now_s = time.monotonic()
        passed_s = now_s - self._looked_s
        if passed_s < (BUSY_LOOK_S if self._held else QUIET_LOOK_S):
            return
        used_s = time.thread_time()
        load = (used_s - self._used_s) / passed_s
        self._looked_s, self._used_s = now_s, used_s
        if self._held and load > self.share * self._allowance.full:
            self._held = not _set_scheduler(NORMAL, SLICE_NS)
        elif not self._held and load < self._wanted * PARTS[-1]:
            self._take()

    def _take(self) -> None:
        """Take the largest part that the kernel grants; if it refuses all, the thread keeps the share it has."""
        for part in PARTS:
            share = self._wanted * part
            if share < self._allowance.least:
                return
            if _set_scheduler(DEADLINE, round(share * PERIOD_NS), PERIOD_NS):
                self._held, self.share = True, share
                return


def reserve_for_pings(nodes: int) -> Reservation:
    """Have this thread run before everything that does not reserve time itself; `nodes` is the size of the cluster.

    A ping that waits for a processor, and not for the link, measures the host.
    """
    take_precedence()
    reservation = Reservation(FOR_PINGS)
    reservation.share_among(nodes)
    return reservation


def _set_scheduler(policy: int, slice_ns: int, period_ns: int = 0) -> bool:
    """Call sched_setattr(2) for this thread. Returns whether the kernel accepted it. Older kernels ignore a slice.

    Args:
        policy: NORMAL, which keeps the thread's niceness, or DEADLINE.
        slice_ns: how long the thread wants to run at a time or, with DEADLINE, in each period.
        period_ns: the period, whose end is the deadline.
    """
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        return False
    size = 48  # of the structure's first version: size, policy, flags, nice, priority, runtime, deadline, period
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", size, policy, 0, nice, 0, slice_ns, period_ns, period_ns)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
