"""Sets IPv4 options of a device over rtnetlink: /proc/sys is read-only in containers.

The kernel takes the same values over rtnetlink (IFLA_INET_CONF), for which NET_ADMIN is enough.
"""

import os
import socket
import struct

NETLINK_ROUTE, RTM_SETLINK, NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 0, 19, 1, 4, 2
IFLA_AF_SPEC, IFLA_INET_CONF = 26, 1
SEND_REDIRECTS, REVERSE_PATH_FILTER = 6, 8  # IPV4_DEVCONF_…, linux/ip.h
LOOSE = 2


def send_redirects(device: str, *, on: bool) -> str:
    """Switch ICMP redirects on or off for a device; the setting of `all` counts, too.

    A node that forwards packets must not announce a shorter way to their sender, because there is no link for it.

    Returns:
        A note for the user if the kernel refuses, else an empty string.
    """
    refusal = _set(device, SEND_REDIRECTS, int(on))
    return f"{device} may send ICMP redirects: {refusal}" if refusal else ""


def set_reverse_path_filter(device: str, value: int) -> None:
    """Set how strictly the kernel checks source addresses on this device; the looser of it and `all` applies."""
    _set(device, REVERSE_PATH_FILTER, value)


def _set(device: str, setting: int, value: int) -> str:
    """Return the kernel's error message if it refuses, else an empty string."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as netlink:
        netlink.send(_message(socket.if_nametoindex(device), setting, value))
        answer = netlink.recv(4096)
    kind, error = struct.unpack_from("=4xH10xi", answer)
    return os.strerror(-error) if kind == NLMSG_ERROR and error else ""


def _message(index: int, setting: int, value: int) -> bytes:
    conf = _attribute(IFLA_INET_CONF, _attribute(setting, struct.pack("=I", value)))
    spec = _attribute(IFLA_AF_SPEC, _attribute(socket.AF_INET, conf))
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + spec
    flags = NLM_F_REQUEST | NLM_F_ACK
    return struct.pack("=IHHII", 16 + len(body), RTM_SETLINK, flags, 1, 0) + body


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data
