"""Being let in at once by the scheduler, for processes whose time is that of the links."""

import ctypes
import gc
import os
import struct
from contextlib import suppress
from pathlib import Path

SLICE_NS = 100_000
"""The shortest time slice that the scheduler grants (kernel 6.12 and later): who asks for less gets it sooner."""
NICE = -20
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call; the C library has no function for it."""


def take_precedence() -> None:
    """Be let in at once when a packet is due, as far as this container may: each step is worth having by itself.

    Measured with four busy loops at nice 19 on two cores, RTT for 50 ms: 51.3 ± 3.5 without, 50.3 ± 0.9 with.
    """
    with suppress(OSError):  # needs the capability SYS_NICE
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError):  # how late the kernel may wake us to save power: 50,000 ns unless told
        Path("/proc/self/timerslack_ns").write_text("1")
    _ask_for_short_slice()
    gc.disable()  # nothing here makes cycles, and a pass over 100,000 held packets takes as long as a short delay
    gc.freeze()


def _ask_for_short_slice() -> None:
    """Call sched_setattr(2): the normal policy, our nice value, and a slice of SLICE_NS.

    Refused or ignored by older kernels, which does no harm.
    """
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        return
    size = 48  # of the structure's first version: size, policy, flags, nice, priority, runtime, deadline, period
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
