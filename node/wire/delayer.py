"""The daemon of the nfqueue wire: the kernel holds the packets, this decides when each may go and which are lost.

One process, `delayer`, serves all queues of a node over one netlink socket. `apply` forks it, hands it a listening
socket and talks to it there: one JSON line each way, {"queues": {number: behaviour}} to set what there shall be,
{"stop": true} to end.
"""

import ctypes
import gc
import heapq
import json
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, time
from typing import NoReturn

from node.wire.holding import Behaviour, HoldingLine
from node.wire.nfnetlink import (
    PACKET_HEAD,
    PACKET_TYPE,
    STAMP,
    STAMP_HEAD,
    STAMP_PLACE,
    STAMPED_LENGTH,
    bind_messages,
    max_length_message,
    open_socket,
    queue_status,
    stamp_arrivals,
    unbind_message,
    verdict_message,
)

BURST = 128
"""Packets taken in before looking again at what is due: some 0.5 ms of work."""
MAX_LEAD_S, LEAD_GAIN, LARGEST_ERROR_S = 1e-3, 0.1, 2e-4
"""How much earlier than a packet is due we may begin to let it go; how fast that is learnt, and from what at most."""
SLICE_NS = 100_000
"""The shortest time slice that the scheduler grants (kernel 6.12 and later): who asks for less gets it sooner."""
NICE = -20
PR_SET_NAME = 15
CLIENT_TIMEOUT_S, MAX_REQUEST = 2.0, 1 << 20
DONE = b'{"error": ""}'
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call; the C library has no function for it."""


class QueueTakenError(Exception):
    """Another program holds a queue that we need."""


class Delayer:
    """All queues of a node: the lines of held packets, and which of them is due next."""

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink
        self._lines: dict[int, HoldingLine] = {}
        self._due: list[
            tuple[float, int]
        ] = []  # a heap: one entry for each line that holds anything
        self._buffer = bytearray(65536)
        self._lead_s = 0.0

    def configure(self, queues: dict[int, Behaviour]) -> None:
        """Serve these queues and no others; those that stay keep what they hold."""
        for queue in self._lines.keys() - queues.keys():
            self._close(queue)
        for queue, behaviour in queues.items():
            if queue in self._lines:
                self._lines[queue].change(behaviour)
            else:
                self._lines[queue] = HoldingLine(behaviour)
                for message in bind_messages(queue):
                    self._netlink.send(message)
            self._netlink.send(max_length_message(queue, behaviour.max_packets))
        self._check_ownership()

    def _check_ownership(self) -> None:
        # Netlink answers a refused request only on demand, and then among the packets; the kernel's
        # own list is easier to read.
        (own_port, _) = self._netlink.getsockname()
        status = queue_status()
        for queue in self._lines:
            owner = status.get(queue)
            if owner is None or owner.port != own_port:
                raise QueueTakenError(f"netfilter queue {queue} is in the hands of another program")

    def _close(self, queue: int) -> None:
        for verdict in self._lines.pop(queue).release(float("inf")):
            self._netlink.send(verdict_message(queue, verdict))
        self._due = [entry for entry in self._due if entry[1] != queue]
        heapq.heapify(self._due)
        self._netlink.send(unbind_message(queue))

    def wait_s(self) -> float | None:
        """How long there is nothing to do unless a packet comes; None for ever."""
        return max(0.0, self._due[0][0] - self._lead_s - monotonic()) if self._due else None

    def take_in(self) -> None:
        """Receive the packets that the kernel announces, up to BURST of them."""
        receive, buffer, lines = self._netlink.recv_into, self._buffer, self._lines
        since_boot = monotonic() - time()  # the kernel stamps by the wall clock, which may be set
        for _ in range(BURST):
            try:
                length = receive(buffer)
            except BlockingIOError:
                return
            kind, queue, packet = PACKET_HEAD.unpack_from(buffer)
            if kind != PACKET_TYPE or queue not in lines:
                continue  # a verdict came too late (the packet's device is gone), or so does this of a closed queue
            arrived = monotonic()
            if length == STAMPED_LENGTH and buffer.startswith(STAMP_HEAD, STAMP_PLACE):
                seconds, microseconds = STAMP.unpack_from(buffer, STAMP_PLACE + 4)
                arrived = min(arrived, seconds + microseconds / 1e6 + since_boot)
            line = lines[queue]
            if line.admit(packet, arrived):
                heapq.heappush(self._due, (line.next_due(), queue))

    def let_go(self) -> float | None:
        """Send the verdicts on all packets that are due. Returns when the first of them was; None if there is none."""
        due, now = self._due, monotonic() + self._lead_s
        first = due[0][0] if due and due[0][0] <= now else None
        while due and due[0][0] <= now:
            queue = due[0][1]
            line = self._lines[queue]
            for verdict in line.release(now):
                self._netlink.send(verdict_message(queue, verdict))
            if line.next_due() < float("inf"):
                heapq.heapreplace(due, (line.next_due(), queue))
            else:
                heapq.heappop(due)
        return first

    def learn(self, due: float) -> None:
        """Begin earlier, next time, the later this packet went that we had slept for; so the mean is on time.

        What has to be made up for is being woken, which takes the longer the busier the machine is.
        """
        error_s = min(max(monotonic() - due, -LARGEST_ERROR_S), LARGEST_ERROR_S)
        self._lead_s = min(max(self._lead_s + LEAD_GAIN * error_s, 0.0), MAX_LEAD_S)


def serve(listener: socket.socket) -> None:
    """Delay packets until told to stop."""
    netlink = open_socket()
    delayer = Delayer(netlink)
    running = True
    with stamp_arrivals():
        while running:
            ready, _, _ = select.select([netlink, listener], [], [], delayer.wait_s())
            if netlink in ready:
                delayer.take_in()
            first_due = delayer.let_go()
            if first_due is not None and not ready:
                delayer.learn(first_due)
            if listener in ready:
                running = _answer(listener, delayer)


def _answer(listener: socket.socket, delayer: Delayer) -> bool:
    """Do what one client asks. Returns whether to go on."""
    client, _ = listener.accept()
    with client, suppress(OSError, ValueError):  # whatever is wrong with a client, packets go on
        client.settimeout(CLIENT_TIMEOUT_S)
        request = json.loads(client.recv(MAX_REQUEST))
        if "queues" in request:
            queues = {
                int(number): Behaviour(*values) for number, values in request["queues"].items()
            }
            client.send(_configure(delayer, queues))
        elif "stop" in request:
            delayer.configure({})
            listener.close()  # before the answer: who gets it may start another daemon at once
            client.send(DONE)
            return False
        else:
            client.send(DONE)  # nothing asked but whether we are here
    return True


def _configure(delayer: Delayer, queues: dict[int, Behaviour]) -> bytes:
    try:
        delayer.configure(queues)
    except (QueueTakenError, OSError) as error:
        return json.dumps({"error": str(error)}).encode()
    return DONE


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


def live_on(listener: socket.socket, log: Path) -> NoReturn:
    """Serve on this socket, as what a fork has become: a process that outlives the session which brought it."""
    try:
        _detach(keep=listener.fileno(), log=log)
        take_precedence()
        serve(listener)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # no module need be imported for it
    finally:
        os._exit(0)


def _detach(keep: int, log: Path) -> None:
    """Leave session, terminal, name and open files behind: among them are the caller's lock and its standard output."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"delayer")
    nothing = os.open(os.devnull, os.O_RDONLY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in enumerate((nothing, words, words)):
        os.dup2(source, number)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != keep:
            with suppress(OSError):  # that of the listing itself is closed by now
                os.close(number)
    os.chdir("/")
