"""Options and addresses that both ends of a connection between learner and actor share."""

import socket

import zmq

from protocol.ports import LEARNER_PORT_OFFSET

# As long as a launch waits for a node that does not answer, and several heartbeats long.
BEAT_MS, SILENCE_MS = 2000, 15_000


def set_up(end: "zmq.Socket[bytes]") -> None:
    """Set the heartbeat that ends a silent connection.

    The kernel sizes the send buffer: a fixed one that is smaller than round trip times rate would slow weights down.
    """
    end.setsockopt(zmq.LINGER, 0)
    end.setsockopt(zmq.HEARTBEAT_IVL, BEAT_MS)
    end.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    # No limit: the actors' windows bound the unread data, and a socket that stopped reading at a limit of its own would
    # miss heartbeats, too.
    end.setsockopt(zmq.RCVHWM, 0)


def make_router(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """Return an unbound socket to which others connect and that answers each of them."""
    router = context.socket(zmq.ROUTER)
    set_up(router)
    # No limit: a full queue would silently drop the next message. The sender bounds what it sends.
    router.setsockopt(zmq.SNDHWM, 0)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # raise an error if the receiver is gone
    router.setsockopt(zmq.IPV6, 1)
    return router


def endpoint(address: tuple[str, int]) -> str:
    """Return ZeroMQ's endpoint of the learner, from torchrun's MASTER_ADDR and MASTER_PORT.

    Raises:
        OSError: the name does not resolve.
    """
    host, port = address
    found = socket.getaddrinfo(host, port + LEARNER_PORT_OFFSET, type=socket.SOCK_STREAM)
    return f"tcp://{in_brackets(str(found[0][4][0]))}:{port + LEARNER_PORT_OFFSET}"


def local_ip(address: tuple[str, int]) -> str:
    """Return this machine's source address for connections to the learner, as ZeroMQ writes it.

    Raises:
        OSError: the name does not resolve, or there is no route.
    """
    host, port = address
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)  # a datagram socket: nothing is sent
        return in_brackets(str(probe.getsockname()[0]))


def in_brackets(ip: str) -> str:
    """Return an address as it stands in an endpoint: IPv6 in brackets."""
    return f"[{ip}]" if ":" in ip else ip
