"""The data device of a node: a VXLAN tunnel of the host's network namespace that ends in the node's.

The tunnel's packets go on through the host's network, whatever the node does. Each node of a host has a tunnel at a UDP
port of its own.
"""

import platform
import re
from collections.abc import Iterable, Sequence

from node.vxlan import (
    DEVICE,
    address_lines,
    data_mtu,
    forwarding_lines,
    link_line,
    resolve_hosts,
)
from node.wire.commands import Device, WireError, run, run_json
from protocol.vxlan_plan import VxlanPlan

RESOLVE_TIMEOUT_S = 10.0
LEAST_RELEASE = (6, 5)


def give_device(plan: VxlanPlan, pid: int) -> None:
    """Make a node's data device, in the node's network namespace.

    Args:
        plan: the plan of the device.
        pid: the node's first process.

    Raises:
        WireError: a peer's host is unknown, or the kernel refuses.
    """
    hosts = resolve_hosts(plan, RESOLVE_TIMEOUT_S)
    _refuse_old_kernel(hosts.values())
    made = Device(DEVICE, data_mtu(hosts.values()))
    # At once in the node, so that nothing of it can be left here; its tunnel is of the namespace of this program.
    run(["ip", *link_line(plan, made, f"netns {pid}").split()])
    _batch_inside(pid, "ip", address_lines(plan))
    _batch_inside(pid, "bridge", forwarding_lines(plan, hosts))


def _refuse_old_kernel(hosts: Iterable[str]) -> None:
    """Refuse two nodes on this machine if its kernel loses the packets between them.

    It has a shortcut for tunnels that end on the same machine, which cannot be switched off before Linux 6.5
    (`nolocalbypass`), and which keeps a packet's route: in another network namespace, that leads nowhere.

    Raises:
        WireError: they would not reach each other.
    """
    release = tuple(int(word) for word in re.findall(r"\d+", platform.release())[:2])
    if release >= LEAST_RELEASE:
        return
    for host in hosts:
        (route,) = run_json(["ip", "-json", "-4", "route", "get", host])
        if route["dev"] == "lo":
            words = f"two nodes on one host without Docker need Linux 6.5, and this is {platform.release()}"
            raise WireError(f"{words}: one node per host (`nodes: 1`), or a Docker engine")


def _batch_inside(pid: int, program: str, lines: Sequence[str]) -> None:
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net", program, "-batch", "-"]
    run(inside, "".join(f"{line}\n" for line in lines))
