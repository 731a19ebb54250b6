"""ICMP redirects off: a node that hands packets on must not tell their sender of a shorter way, for there is no link.

`net.ipv4.conf.DEVICE.send_redirects` counts beside that of `all`, a container finds it on, and /proc/sys is read-only
there. The kernel takes the same value over rtnetlink (IFLA_INET_CONF), for which NET_ADMIN is enough.
"""

import os
import socket
import struct

NETLINK_ROUTE, RTM_SETLINK, NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 0, 19, 1, 4, 2
IFLA_AF_SPEC, IFLA_INET_CONF, DEVCONF_SEND_REDIRECTS = 26, 1, 6


def send_redirects(device: str, *, on: bool) -> str:
    """Switch them on or off. Returns a note for the user if the kernel refuses, or nothing."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as netlink:
        netlink.send(_message(socket.if_nametoindex(device), on=on))
        answer = netlink.recv(4096)
    kind, error = struct.unpack_from("=4xH10xi", answer)
    if kind == NLMSG_ERROR and error:
        return f"{device} may send ICMP redirects: {os.strerror(-error)}"
    return ""


def _message(index: int, *, on: bool) -> bytes:
    value = _attribute(DEVCONF_SEND_REDIRECTS, struct.pack("=I", on))
    spec = _attribute(IFLA_AF_SPEC, _attribute(socket.AF_INET, _attribute(IFLA_INET_CONF, value)))
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + spec
    flags = NLM_F_REQUEST | NLM_F_ACK
    return struct.pack("=IHHII", 16 + len(body), RTM_SETLINK, flags, 1, 0) + body


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data
