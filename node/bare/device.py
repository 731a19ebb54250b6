"""The data device of a node: one end of a veth pair, whose other end a bridge connects with a VXLAN tunnel.

Bridge and tunnel are in a network namespace between the host's and the node's, that of the node's conmon: a node may
configure its own devices (NET_ADMIN), and these are not among them. The tunnel's packets go on through the host's
network. Each node of a host has a tunnel at a UDP port of its own.
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

TUNNEL, NODE_END, BRIDGE = "tunnel", "node", "bridge"
RESOLVE_TIMEOUT_S = 10.0
LEAST_RELEASE = (6, 5)


def give_device(plan: VxlanPlan, pid: int, between: int) -> None:
    """Make a node's data device and its tunnel; they go with the namespaces of the node and of its conmon.

    Args:
        plan: the plan of the device.
        pid: the node's first process.
        between: its conmon, a process in the network namespace between the host's and the node's.

    Raises:
        WireError: a peer's host is unknown, or the kernel refuses.
    """
    hosts = resolve_hosts(plan, RESOLVE_TIMEOUT_S)
    _refuse_old_kernel(hosts.values())
    made = Device(TUNNEL, data_mtu(hosts.values()))
    # At once where it ends, so that nothing of it can be left here; its packets go through the host's namespace.
    run(["ip", *link_line(plan, made, f"netns {between}").split()])
    _batch_inside(between, "ip", bridge_lines(plan, made.mtu, pid))
    _batch_inside(between, "bridge", forwarding_lines(plan, hosts, TUNNEL))
    _batch_inside(pid, "ip", address_lines(plan))


def bridge_lines(plan: VxlanPlan, mtu: int, pid: int) -> list[str]:
    """Return the lines for `ip -batch` that make the node's device and connect it with the tunnel."""
    node = f"peer name {DEVICE} address {plan.mac} mtu {mtu} netns {pid}"
    return [
        f"link add {NODE_END} mtu {mtu} type veth {node}",
        f"link add {BRIDGE} type bridge",
        # No IPv6 address, or the kernel would send packets of its own through the tunnel.
        *(f"link set {one} addrgenmode none" for one in (BRIDGE, TUNNEL, NODE_END)),
        *(f"link set {one} master {BRIDGE} up" for one in (TUNNEL, NODE_END)),
        f"link set {BRIDGE} up",
    ]


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
