"""Drops privileges that a node has and a rank must not have: changing links, precedence over the wire.

For a process before it becomes the rank. Root in a node can regain both by a login: this only keeps programs from
doing it unasked.
"""

import ctypes
import struct
from contextlib import suppress
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
VERSION_3 = 0x20080522
"""The version of capget(2) with two words of 32 capabilities for each of the three sets."""
NET_ADMIN, SYS_NICE = 12, 23
OOM_SCORE = Path("/proc/self/oom_score_adj")
MOST_OOM_SCORE = 1000
_libc = ctypes.CDLL(None, use_errno=True)


def drop_privileges() -> None:
    """Drop NET_ADMIN and SYS_NICE, for this process and everything that it becomes or starts.

    Root gets everything that the container may have whenever it executes a program, except in processes with
    no_new_privs; removing capabilities from the bounding set would need SETPCAP.
    """
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.calcsize("=6I"))
    if _libc.capget(header, sets):
        return  # no capabilities in this kernel, so none to drop
    low = [word & ~(1 << NET_ADMIN | 1 << SYS_NICE) for word in struct.unpack("=6I", sets)[:3]]
    high = struct.unpack("=6I", sets)[3:]
    _libc.capset(header, struct.pack("=6I", *low, *high))


def be_killed_first() -> None:
    """Make the kernel kill a rank, and no other process, when the machine or the node is out of memory."""
    with suppress(OSError):  # no such file in this kernel
        OOM_SCORE.write_text(str(MOST_OOM_SCORE))
