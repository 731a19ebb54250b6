"""What a rank may not do that its node may: change links, go before the wire. Of a process before it becomes the rank.

Root in a node can come by both again, by a login of its own: this keeps programs from doing it unasked.
"""

import ctypes
import struct
from contextlib import suppress
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
VERSION_3 = 0x20080522
"""Of capget(2): two words of 32 capabilities for each of the three sets."""
NET_ADMIN, SYS_NICE = 12, 23
OOM_SCORE = Path("/proc/self/oom_score_adj")
MOST_OOM_SCORE = 1000
_libc = ctypes.CDLL(None, use_errno=True)


def drop_privileges() -> None:
    """Do without NET_ADMIN and SYS_NICE, and so for whatever this process becomes or starts.

    Root gets all that the container may have whenever it starts a program, but for processes without new privileges;
    to take them out of the bounding set would need SETPCAP.
    """
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.calcsize("=6I"))
    if _libc.capget(header, sets):
        return  # no capabilities in this kernel: nor any to drop
    low = [word & ~(1 << NET_ADMIN | 1 << SYS_NICE) for word in struct.unpack("=6I", sets)[:3]]
    high = struct.unpack("=6I", sets)[3:]
    _libc.capset(header, struct.pack("=6I", *low, *high))


def be_killed_first() -> None:
    """Where memory ends, of the machine or of the node, the kernel shall take a rank, and nobody else's process."""
    with suppress(OSError):  # no such file in this kernel
        OOM_SCORE.write_text(str(MOST_OOM_SCORE))
