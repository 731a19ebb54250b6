"""The daemon of the nfqueue wire: one process (`delayer` in ps) serves all queues of a node.

`apply` forks it, hands it a listening socket and talks to it there, one JSON object each way: {"queues": {number:
behaviour}, "downlink": [bytes a second, longest wait in s] or null, "nodes": size of the cluster} sets all queues;
{"change": {number: behaviour}} changes some of them; {"stop": true} ends the daemon; {} returns how late packets were
released and, per queue, how many arrived and how many random loss dropped; {"does": true} returns a checksum of
everything that is done. Whatever a client says or does not say, packets go on.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from node.base.scheduling import FOR_THE_WIRE, Reservation, disable_gc, take_precedence
from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.nfnetlink import stamp_arrivals
from node.wire.nfqueue.paths import Paths
from node.wire.nfqueue.queues import QueueTakenError

CLIENT_TIMEOUT_S, MAX_REQUEST = 2.0, 1 << 20
Answer = dict[str, object]


class Clients:
    """The clients on a listening socket, one at a time; one that says nothing in CLIENT_TIMEOUT_S is given up."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._client: socket.socket | None = None
        self._deadline = 0.0

    @property
    def awaited(self) -> socket.socket:
        """The socket to wait for: the client's, or the listener if there is no client."""
        return self._client or self._listener

    def wait_s(self) -> float | None:
        """Return how long to wait for it; None for ever."""
        return max(0.0, self._deadline - monotonic()) if self._client else None

    def come(self) -> socket.socket | None:
        """Return the client if it has spoken; call this when `awaited` can be read."""
        if self._client is None:
            self._client, _ = self._listener.accept()
            self._client.setblocking(False)
            self._deadline = monotonic() + CLIENT_TIMEOUT_S
            return None
        spoken, self._client = self._client, None
        return spoken

    def give_up(self) -> None:
        """Leave a client whose time is over."""
        if self._client and monotonic() >= self._deadline:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """Accept no further client."""
        self._listener.close()


def serve(listener: socket.socket) -> None:
    """Delay packets until told to stop."""
    paths, reservation, clients = Paths(), Reservation(FOR_THE_WIRE), Clients(listener)
    running = True
    with stamp_arrivals():
        while running:
            if paths.run(clients.awaited, clients.wait_s()):
                if client := clients.come():
                    running = _serve_one(client, clients, paths, reservation)
            else:
                clients.give_up()
            reservation.look()


def _serve_one(
    client: socket.socket, clients: Clients, paths: Paths, reservation: Reservation
) -> bool:
    """Do what a client asks. Returns whether to go on."""
    goes_on = True
    with client, suppress(OSError):  # it may have gone
        if message := client.recv(MAX_REQUEST):
            answer, goes_on = _answer(message, paths, reservation)
            if not goes_on:
                clients.close()  # before the reply: the client may start another daemon as soon as it gets it
            client.send(json.dumps({"error": ""} | answer).encode())
    return goes_on


def _answer(message: bytes, paths: Paths, reservation: Reservation) -> tuple[Answer, bool]:
    """Do what a message asks. Returns the answer, and whether to go on."""
    try:
        request = json.loads(message)
        if "stop" in request:
            paths.configure({}, None)
            return {}, False
        return _obey(request, paths, reservation), True
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}, True


def _obey(request: dict[str, Any], paths: Paths, reservation: Reservation) -> Answer:
    if "queues" in request:
        reservation.share_among(request["nodes"])
        return _set(partial(paths.configure, downlink=request["downlink"]), request["queues"])
    if "change" in request:
        return _set(paths.change, request["change"])
    if "does" in request:
        return {"does": paths.checksum()}
    late, worst_s = paths.lateness()  # an empty request, also to ask whether we are alive
    return {"late": late, "worst_ms": round(worst_s * 1e3, 3), "taken": paths.taken()}


def _set(action: Callable[[dict[int, Behaviour]], None], given: dict[str, list[Any]]) -> Answer:
    try:
        action({int(number): Behaviour(*values) for number, values in given.items()})
    except KeyError as error:
        return {"error": f"there is no queue {error}"}
    except (QueueTakenError, OSError) as error:
        return {"error": str(error)}
    return {}


def live_on(listener: socket.socket, log: Path) -> NoReturn:
    """Serve on this socket, in a fork: a process that outlives the session that created it."""
    try:
        _detach(keep=listener.fileno(), log=log)
        take_precedence()
        disable_gc()
        serve(listener)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # needs no further import
    finally:
        os._exit(0)


def _detach(keep: int, log: Path) -> None:
    """Leave session, terminal, name and open files behind: the files include the caller's lock and standard output."""
    os.setsid()
    Path("/proc/self/comm").write_text("delayer")
    nothing = os.open(os.devnull, os.O_RDONLY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in enumerate((nothing, words, words)):
        os.dup2(source, number)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != keep:
            with suppress(OSError):  # the descriptor of the listing itself is closed by now
                os.close(number)
    os.chdir("/")
