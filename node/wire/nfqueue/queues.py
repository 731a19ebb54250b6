"""Opens and closes netfilter queues, and checks who owns them."""

import socket
from collections.abc import Iterable

from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.nfnetlink import (
    bind_message,
    copy_messages,
    max_length_message,
    queue_status,
    unbind_message,
)


class QueueTakenError(Exception):
    """Another program holds a queue that we need."""


def open_queue(
    netlink: socket.socket, queue: int, behaviour: Behaviour, before: Behaviour | None
) -> None:
    """Have the packets of a queue announced on this socket, or change how they are announced."""
    if before is None:
        netlink.send(bind_message(queue))
    if before is None or before.copied != behaviour.copied:
        for message in copy_messages(queue, behaviour.copied):
            netlink.send(message)
    netlink.send(max_length_message(queue, behaviour.max_packets))


def close_queue(netlink: socket.socket, queue: int) -> None:
    """Give a queue back. Packets that come to it from now on pass at once."""
    netlink.send(unbind_message(queue))


def check_ownership(netlink: socket.socket, queues: Iterable[int]) -> None:
    """Check that these queues are announced on this socket.

    Netlink reports a refused request only on demand, and then among the packets; the kernel's own list is easier to
    read.

    Raises:
        QueueTakenError: one of them is not.
    """
    (own_port, _) = netlink.getsockname()
    status = queue_status()
    for queue in queues:
        owner = status.get(queue)
        if owner is None or owner.port != own_port:
            raise QueueTakenError(f"netfilter queue {queue} is in the hands of another program")
