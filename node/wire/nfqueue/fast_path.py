"""The per-packet path in C (fast_path.c), for queues whose packets are only delayed or lost.

Random draws are made here, by the same class that the path in Python uses, and handed over in batches.
"""

import ctypes
import socket
import struct
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from ctypes import POINTER, c_double, c_int, c_size_t, c_uint16, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from node.wire.nfqueue.delay_line import Behaviour, Chances
from node.wire.nfqueue.nfnetlink import ACCEPT, DROP
from node.wire.nfqueue.queues import check_ownership, close_queue, open_queue

LIBRARY = Path(__file__).with_name("libfastpath.so")
DRAWS, FEW_DRAWS = 512, 256
"""The size of a batch of draws, which takes half a millisecond; when fast_path.c asks for more, queues with fewer
than FEW_DRAWS left get a batch."""
NEEDS_DRAWS = 1 << 16
"""A flag in what `run` returns, as in fast_path.c."""
DRAW = struct.Struct("dI4x")
FOR_EVER_S = 3600.0
_DELAYER, _QUEUE, _NUMBER, _SECONDS = c_void_p, c_uint16, c_size_t, c_double
PROTOTYPES: dict[str, list[Any]] = {
    "new": [_DELAYER, c_int],
    "set": [c_int, _DELAYER, _QUEUE, _SECONDS, _SECONDS],
    "forget_draws": [None, _DELAYER, _QUEUE],
    "add_draws": [c_void_p, _DELAYER, _QUEUE, _NUMBER],
    "draws_left": [_NUMBER, _DELAYER, _QUEUE],
    "close": [None, _DELAYER, _QUEUE],
    "late": [c_uint64, _DELAYER, POINTER(c_double)],
    "taken": [c_uint64, _DELAYER, _QUEUE, POINTER(c_uint64)],
    "take_in": [c_int, _DELAYER, _SECONDS, _SECONDS],
    "wait_s": [_SECONDS, _DELAYER, _SECONDS],
    "release_due": [_SECONDS, _DELAYER, _SECONDS],
    "run": [c_int, _DELAYER, POINTER(c_int), c_int, _SECONDS],
}
"""The functions of fast_path.c: what each returns, and its arguments."""


def load_library() -> ctypes.CDLL | None:
    """Load the compiled path; None if the image has none."""
    if not LIBRARY.exists():
        return None
    library = ctypes.CDLL(str(LIBRARY))
    for name, (result, *arguments) in PROTOTYPES.items():
        function = getattr(library, f"fast_path_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Draws:
    """The random draws of a queue, made in batches before its packets arrive."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._chances = Chances(behaviour)
        # As they were before each of the last batches. At most FEW_DRAWS are left when a batch is added.
        self._before: deque[Chances] = deque(maxlen=2)

    def make_batch(self) -> bytes:
        """Return the next DRAWS draws."""
        self._before.append(self._chances.copy())
        return b"".join(DRAW.pack(*self._next()) for _ in range(DRAWS))

    def change(self, behaviour: Behaviour, unused: int) -> None:
        """Draw by other rules from now on. The streams continue where packets have come to.

        Args:
            behaviour: the new rules.
            unused: how many of the last draws no packet has used.
        """
        if unused:
            batches = -(-unused // DRAWS)
            self._chances = self._before[-batches]
            for _ in range(batches * DRAWS - unused):
                self._next()
        self._before.clear()
        self._chances.change(behaviour)

    def _next(self) -> tuple[float, int]:
        return self._chances.jitter_s(), DROP if self._chances.is_lost() else ACCEPT


class FastPath:
    """Plain queues, on a socket of their own.

    Args:
        library: from `load_library`.
        netlink: the socket on which their packets are announced. It must outlive this object.
    """

    def __init__(self, library: ctypes.CDLL, netlink: socket.socket) -> None:
        self._library, self._netlink = library, netlink
        self._pointer = library.fast_path_new(netlink.fileno())
        if not self._pointer:
            raise MemoryError
        self._behaviours: dict[int, Behaviour] = {}
        self._draws: dict[int, Draws] = {}

    def configure(self, queues: Mapping[int, Behaviour]) -> None:
        """Serve these queues and no others; those that stay keep what they hold.

        Raises:
            QueueTakenError: another program holds one of them.
        """
        self.keep(queues)
        self._set(queues)
        check_ownership(self._netlink, self._behaviours)

    def keep(self, queues: Collection[int]) -> None:
        """Give back all queues but these; the packets that they hold go at once."""
        for queue in self._behaviours.keys() - set(queues):
            self._close(queue)

    def change(self, queues: Mapping[int, Behaviour]) -> None:
        """Apply other rules to new packets of some queues; the other queues are not touched."""
        for queue in queues:
            if queue not in self._behaviours:
                raise KeyError(queue)
        self._set(queues)

    def _set(self, queues: Mapping[int, Behaviour]) -> None:
        for queue, behaviour in queues.items():
            before = self._behaviours.get(queue)
            if behaviour == before:
                continue
            open_queue(self._netlink, queue, behaviour, before)
            if self._library.fast_path_set(
                self._pointer, queue, behaviour.delay_s, behaviour.shortest_s
            ):
                raise MemoryError
            self._behaviours[queue] = behaviour
            if before is None or behaviour.drawn_by != before.drawn_by:
                self._leave_to_chance(queue, behaviour)

    def _leave_to_chance(self, queue: int, behaviour: Behaviour) -> None:
        """Set what packets draw from now on; the streams of a queue that has drawn already continue."""
        if queue in self._draws:
            self._draws[queue].change(behaviour, self._draws_left(queue))
        else:
            self._draws[queue] = Draws(behaviour)
        self._library.fast_path_forget_draws(self._pointer, queue)
        if behaviour.is_chancy:
            self._draw(queue)

    def _draw(self, queue: int) -> None:
        place = self._library.fast_path_add_draws(self._pointer, queue, DRAWS)
        if not place:
            raise MemoryError
        batch = self._draws[queue].make_batch()
        ctypes.memmove(place, batch, len(batch))

    def _close(self, queue: int) -> None:
        self._library.fast_path_close(self._pointer, queue)
        close_queue(self._netlink, queue)
        del self._behaviours[queue], self._draws[queue]

    def run(self, sockets: Sequence[socket.socket], most_s: float | None) -> list[socket.socket]:
        """Do due work until one of these sockets can be read, a time has passed, or the caller must look at its share.

        Returns:
            The sockets that can be read.
        """
        files = (c_int * len(sockets))(*(one.fileno() for one in sockets))
        longest_s = FOR_EVER_S if most_s is None else most_s
        said = self._library.fast_path_run(self._pointer, files, len(sockets), longest_s)
        if said & NEEDS_DRAWS:
            self._draw_more()
        return [one for number, one in enumerate(sockets) if said & 1 << number]

    def _draw_more(self) -> None:
        for queue, behaviour in self._behaviours.items():
            if behaviour.is_chancy and self._draws_left(queue) < FEW_DRAWS:
                self._draw(queue)

    def _draws_left(self, queue: int) -> int:
        left: int = self._library.fast_path_draws_left(self._pointer, queue)
        return left

    def taken(self) -> dict[int, tuple[int, int]]:
        """Return by queue how many packets arrived, and how many of them random loss dropped."""
        return {queue: self._taken(queue) for queue in self._behaviours}

    def _taken(self, queue: int) -> tuple[int, int]:
        lost = c_uint64()
        return self._library.fast_path_taken(self._pointer, queue, ctypes.byref(lost)), lost.value

    def lateness(self) -> tuple[int, float]:
        """Return how many packets went late, and by how many seconds the worst of them."""
        worst_s = c_double()
        late = self._library.fast_path_late(self._pointer, ctypes.byref(worst_s))
        return late, worst_s.value
