"""What both ends of a connection between learner and actor have in common."""

import socket

import zmq

from protocol.ports import LEARNER_PORT_OFFSET

# As long as a launch waits for a node that does not answer, and several beats.
BEAT_MS, SILENCE_MS = 2000, 15_000
SOCKET_BYTES = (
    262_144  # that wait in the kernel: on a slow link what is behind them is late by as much
)


def set_up(end: "zmq.Socket[bytes]") -> None:
    """Set what ends a connection that is silent, and how much may wait in the kernel."""
    end.setsockopt(zmq.LINGER, 0)
    end.setsockopt(zmq.HEARTBEAT_IVL, BEAT_MS)
    end.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    end.setsockopt(zmq.SNDBUF, SOCKET_BYTES)
    # What waits to be read is bounded by the actors' windows. A socket that stops reading for a bound of its own would
    # not see heartbeats any more, either.
    end.setsockopt(zmq.RCVHWM, 0)


def make_router(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """What others connect to, each of which is sent answers of its own; it is not bound yet."""
    router = context.socket(zmq.ROUTER)
    set_up(router)
    # Of a full queue the next message would be dropped in silence; who sends bounds what there is.
    router.setsockopt(zmq.SNDHWM, 0)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so where nobody is any more
    router.setsockopt(zmq.IPV6, 1)
    return router


def endpoint(address: tuple[str, int]) -> str:
    """ZeroMQ's word for the learner's address: torchrun's MASTER_ADDR and MASTER_PORT.

    Raises:
        OSError: nobody has that name.
    """
    host, port = address
    found = socket.getaddrinfo(host, port + LEARNER_PORT_OFFSET, type=socket.SOCK_STREAM)
    return f"tcp://{in_brackets(str(found[0][4][0]))}:{port + LEARNER_PORT_OFFSET}"


def local_ip(address: tuple[str, int]) -> str:
    """The address of this machine that a connection to the learner would come from, as ZeroMQ writes it.

    Raises:
        OSError: nobody has that name, or nothing leads there.
    """
    host, port = address
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)  # of datagrams: nothing is sent
        return in_brackets(str(probe.getsockname()[0]))


def in_brackets(ip: str) -> str:
    """An address as a part of an endpoint."""
    return f"[{ip}]" if ":" in ip else ip
