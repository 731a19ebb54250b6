"""The daemon of the nfqueue wire: one process (`delayer` in ps) serves all queues of a node.

`apply` forks it, hands it a listening socket and talks to it there, one JSON object each way: {"queues": {number:
behaviour}, "downlink": [bytes a second, longest wait in s] or null, "nodes": size of the cluster} sets all queues;
{"change": {number: behaviour}} changes some of them; {"stop": true} ends the daemon; {} returns how late packets were
released and, per queue, how many arrived and how many random loss dropped; {"does": true} returns a checksum of
everything that is done.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from node.base.scheduling import FOR_THE_WIRE, Reservation, disable_gc, take_precedence
from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.delayers import Delayers
from node.wire.nfqueue.nfnetlink import stamp_arrivals
from node.wire.nfqueue.queues import QueueTakenError

CLIENT_TIMEOUT_S, MAX_REQUEST = 2.0, 1 << 20
DONE = b'{"error": ""}'


def serve(listener: socket.socket) -> None:
    """Delay packets until told to stop."""
    delayers, reservation = Delayers(), Reservation(FOR_THE_WIRE)
    running = True
    with stamp_arrivals():
        while running:
            if delayers.run(listener):
                running = _answer(listener, delayers, reservation)
            reservation.look()


def _answer(listener: socket.socket, delayers: Delayers, reservation: Reservation) -> bool:
    """Do what one client asks. Returns whether to go on."""
    client, _ = listener.accept()
    with client, suppress(OSError, ValueError):  # whatever is wrong with a client, packets go on
        client.settimeout(CLIENT_TIMEOUT_S)
        request = json.loads(client.recv(MAX_REQUEST))
        if "queues" in request:
            reservation.share_among(request["nodes"])
            configure = partial(delayers.configure, downlink=request["downlink"])
            client.send(_obey(configure, request["queues"]))
        elif "change" in request:
            client.send(_obey(delayers.change, request["change"]))
        elif "stop" in request:
            delayers.configure({}, None)
            listener.close()  # before the reply: the client may start another daemon as soon as it gets it
            client.send(DONE)
            return False
        elif "does" in request:
            client.send(json.dumps({"error": "", "does": delayers.checksum()}).encode())
        else:
            client.send(_counts(delayers))  # an empty request, also to ask whether we are alive
    return True


def _obey(action: Callable[[dict[int, Behaviour]], None], given: dict[str, list[Any]]) -> bytes:
    try:
        action({int(number): Behaviour(*values) for number, values in given.items()})
    except KeyError as error:
        return json.dumps({"error": f"there is no queue {error}"}).encode()
    except (QueueTakenError, OSError) as error:
        return json.dumps({"error": str(error)}).encode()
    return DONE


def _counts(delayers: Delayers) -> bytes:
    late, worst_s = delayers.lateness()
    counts = {"late": late, "worst_ms": round(worst_s * 1e3, 3), "taken": delayers.taken()}
    return json.dumps({"error": "", **counts}).encode()


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
