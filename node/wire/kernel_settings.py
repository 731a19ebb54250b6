"""Reads the kernel settings of `protocol.link_report.Settings`, and refuses a plan that wants others."""

import os
import re
import socket
from pathlib import Path

from node.wire.commands import WireError
from protocol.link_report import Settings
from protocol.node_plan import NodePlan

IPV4 = Path("/proc/sys/net/ipv4")
DATA_ROUTE = re.compile(r"00[0-9A-F]{2}4D0A")
"""10.77.S.0 as the kernel prints it: in hexadecimal digits, last byte first. As in node/boot.sh."""
MOST_BYTES = 2**31 - 1  # the most that setsockopt takes


def read_settings() -> Settings:
    """Return all settings as they are now."""
    return Settings(
        kernel=os.uname().release,
        wmem_max_bytes=_largest_buffer(socket.SO_SNDBUF),
        rmem_max_bytes=_largest_buffer(socket.SO_RCVBUF),
        tcp_wmem_bytes=_largest_tuned("tcp_wmem"),
        tcp_rmem_bytes=_largest_tuned("tcp_rmem"),
        slow_start_after_idle=_slow_start_after_idle(),
        default_tcp=(IPV4 / "tcp_congestion_control").read_text().strip(),
        mtu=_mtu(Path("/proc/net/route").read_text()),
    )


def refuse_other_slow_start(plan: NodePlan) -> None:
    """Check that slow start after idle is as the plan says: /proc/sys is read-only here, so Compose sets it.

    Raises:
        WireError: it differs.
    """
    is_on = _slow_start_after_idle()
    if is_on != plan.slow_start_after_idle:
        words = ("on", "off") if is_on else ("off", "on")
        raise WireError(
            "slow start after idle is {} in this node and shall be {}, and a container keeps what it was made with: "
            "`python -m cluster.up --profile NAME` makes the nodes anew".format(*words)
        )


def _largest_buffer(option: int) -> int:
    """Return the largest size that a socket's buffer may be set to: net.core.wmem_max or rmem_max.

    Asks a socket, because on older kernels a container cannot read these settings. The kernel grants twice the
    requested size, half of it for its own bookkeeping: socket(7).
    """
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, option, MOST_BYTES)
        return sock.getsockopt(socket.SOL_SOCKET, option) // 2


def _largest_tuned(name: str) -> int:
    """Return the last of the three numbers of tcp_wmem or tcp_rmem: minimum, default, maximum."""
    return int((IPV4 / name).read_text().split()[2])


def _slow_start_after_idle() -> bool:
    return (IPV4 / "tcp_slow_start_after_idle").read_text().strip() != "0"


def _mtu(routes: str) -> int | None:
    """Return the MTU of the data network's device; None if there is none."""
    device = data_device(routes)
    return int(Path("/sys/class/net", device, "mtu").read_text()) if device else None


def data_device(routes: str) -> str:
    """Return the device that leads to the data network, from the text of /proc/net/route; empty if there is none.

    It is not the device of the default route: in a cluster on several hosts, that leads to the host by another network.
    """
    rows = [line.split() for line in routes.splitlines()[1:]]
    devices = [device for device, destination, *_ in rows if DATA_ROUTE.fullmatch(destination)]
    return devices[0] if devices else ""
