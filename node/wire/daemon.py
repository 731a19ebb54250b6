"""The daemon of the nfqueue wire: one process, `delayer`, that serves all queues of a node over one netlink socket.

`apply` forks it, hands it a listening socket and talks to it there: one JSON line each way, {"queues": {number:
behaviour}, "downlink": [bytes a second, longest wait in s] or null, "nodes": how many the cluster has} to set what
there shall be, {"change": {number: behaviour}} to change some of the queues, {"stop": true} to end, {} to hear how late
packets went.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from node.wire.delayer import Delayer, QueueTakenError
from node.wire.holding import Behaviour
from node.wire.nfnetlink import open_socket, stamp_arrivals
from node.wire.precedence import Reservation, take_precedence

CLIENT_TIMEOUT_S, MAX_REQUEST = 2.0, 1 << 20
DONE = b'{"error": ""}'


def serve(listener: socket.socket) -> None:
    """Delay packets until told to stop."""
    netlink = open_socket()
    delayer, reservation = Delayer(netlink), Reservation()
    running = True
    with stamp_arrivals():
        while running:
            was_busy = delayer.is_busy
            awaited = [listener] if was_busy else [netlink, listener]
            ready, _, _ = select.select(awaited, [], [], delayer.wait_s())
            if was_busy or netlink in ready:
                delayer.take_in()
            first_due = delayer.let_go()
            if first_due is not None and not ready and not was_busy:
                delayer.learn(first_due)
            if listener in ready:
                running = _answer(listener, delayer, reservation)
            reservation.look()


def _answer(listener: socket.socket, delayer: Delayer, reservation: Reservation) -> bool:
    """Do what one client asks. Returns whether to go on."""
    client, _ = listener.accept()
    with client, suppress(OSError, ValueError):  # whatever is wrong with a client, packets go on
        client.settimeout(CLIENT_TIMEOUT_S)
        request = json.loads(client.recv(MAX_REQUEST))
        if "queues" in request:
            reservation.share_among(request["nodes"])
            configure = partial(delayer.configure, downlink=request["downlink"])
            client.send(_obey(configure, request["queues"]))
        elif "change" in request:
            client.send(_obey(delayer.change, request["change"]))
        elif "stop" in request:
            delayer.configure({}, None)
            listener.close()  # before the answer: who gets it may start another daemon at once
            client.send(DONE)
            return False
        else:
            client.send(_lateness(delayer))  # nothing asked but whether we are here
    return True


def _obey(action: Callable[[dict[int, Behaviour]], None], given: dict[str, list[Any]]) -> bytes:
    try:
        action({int(number): Behaviour(*values) for number, values in given.items()})
    except KeyError as error:
        return json.dumps({"error": f"there is no queue {error}"}).encode()
    except (QueueTakenError, OSError) as error:
        return json.dumps({"error": str(error)}).encode()
    return DONE


def _lateness(delayer: Delayer) -> bytes:
    worst_ms = round(delayer.worst_late_s * 1e3, 3)
    return json.dumps({"error": "", "late": delayer.late, "worst_ms": worst_ms}).encode()


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
    Path("/proc/self/comm").write_text("delayer")
    nothing = os.open(os.devnull, os.O_RDONLY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in enumerate((nothing, words, words)):
        os.dup2(source, number)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != keep:
            with suppress(OSError):  # that of the listing itself is closed by now
                os.close(number)
    os.chdir("/")
