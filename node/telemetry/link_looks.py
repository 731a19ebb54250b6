"""The counters of the outgoing links, second by second.

The plan in force (node/wire/state.py) tells which class belongs to which link; it is read again when it has changed:
a schedule changes links in place.
"""

import socket

from node.telemetry.tc_dump import CLASS, QDISC, Counters, dump, open_socket
from node.wire import htb, state
from protocol.telemetry import LinkLook

NONE = Counters(0, 0, 0)
MAJOR = int(htb.HANDLE, 16) << 16


class LinkLooks:
    """Looks at the links that start at this node."""

    def __init__(self) -> None:
        self._version = (0, 0)  # of the plan in force: its file's time and inode
        self._device = ""
        self._links: dict[str, tuple[int, float]] = {}  # peer -> number of its class, MB/s asked

    def look(self) -> dict[str, LinkLook]:
        """Return the counters of each link, by peer; empty if nothing is shaped.

        Raises:
            OSError: the kernel does not answer, or the device has gone.
        """
        self._read_plan()
        if not self._links:
            return {}
        index = socket.if_nametoindex(self._device)
        with open_socket() as netlink:
            classes, queues = (dump(netlink, kind, index) for kind in (CLASS, QDISC))
        # As in node/wire/egress.py: only a queue counts dropped single frames of a super-packet.
        return {
            peer: LinkLook(
                classes[MAJOR | number].sent_bytes,
                classes[MAJOR | number].backlog_bytes,
                queues.get(number << 16, NONE).dropped_packets,
                asked_mbyte_s,
            )
            for peer, (number, asked_mbyte_s) in self._links.items()
            if MAJOR | number in classes
        }

    def _read_plan(self) -> None:
        try:
            found = state.FILE.stat()
            version = (found.st_mtime_ns, found.st_ino)
        except OSError:
            version = (0, 0)
        if version == self._version:
            return
        saved = state.load()
        self._version, self._links = version, {}
        if saved is not None:
            layout = saved.layout
            self._device = layout.device.name
            self._links = {
                peer: (int(htb.link_id(layout.slots[peer]), 16), link.rate_mbyte_s)
                for peer, link in layout.plan.outgoing().items()
            }
