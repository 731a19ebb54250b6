"""Makes a node's data device: a VXLAN tunnel to every other node, over any network that carries UDP between them.

For nodes that no Docker network connects: pods of Kubernetes, and nodes on hosts without Docker. Links are applied to
the device afterwards, like to any other (`python -m node.wire apply`). NET_ADMIN is enough. The tunnels are static
(RFC 7348 without multicast and without learning): the plan (protocol/vxlan_plan.py) has all addresses. VXLAN is neither
encrypted nor authenticated: whoever can send UDP to its port can send packets into the data network.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from node.wire.commands import Device, WireError, run, run_batch, run_json
from protocol.vxlan_plan import OVERHEAD_BYTES, PREFIX_LENGTH, VxlanPlan

DEVICE = "data0"
LARGEST_MTU = 1500  # of the data device, also where the network below has jumbo frames
RESOLVE_TIMEOUT_S = 600.0  # other pods may still be waiting for a machine, or for the image
RESOLVE_INTERVAL_S = 1.0
FLOOD = "00:00:00:00:00:00"  # stands for every unknown destination, and for broadcasts (ARP)


def make_device(plan: VxlanPlan) -> Device:
    """Make the data device, in place of an earlier one; waits until the peers' names can be resolved.

    Raises:
        WireError: a name cannot be resolved, a peer cannot be reached, or the kernel refuses.
    """
    hosts = resolve_hosts(plan, RESOLVE_TIMEOUT_S)
    device = Device(DEVICE, data_mtu(hosts.values()))
    _remove_device()
    made = link_line(plan, device, f"address {plan.mac}")
    run_batch("ip", [made, *address_lines(plan)])
    run_batch("bridge", forwarding_lines(plan, hosts, DEVICE))
    return device


def link_line(plan: VxlanPlan, device: Device, more: str) -> str:
    """Return the line for `ip -batch` that makes a tunnel; `more`: words for its address, or its network namespace."""
    kind = f"vxlan id {plan.vni} dstport {plan.port} nolearning nolocalbypass"
    return f"link add {device.name} {more} mtu {device.mtu} type {kind}"


def address_lines(plan: VxlanPlan) -> list[str]:
    """Return the lines for `ip -batch` that give the device its address and switch it on."""
    return [f"address add {plan.address}/{PREFIX_LENGTH} dev {DEVICE}", f"link set {DEVICE} up"]


def forwarding_lines(plan: VxlanPlan, hosts: Mapping[str, str], tunnel: str) -> list[str]:
    """Return the lines for `bridge -batch` that say where each peer is; `hosts` are their addresses below, by name."""
    return [
        f"fdb append {mac} dev {tunnel} dst {hosts[name]} port {peer.port}"
        for name, peer in plan.peers.items()
        for mac in (peer.mac, FLOOD)
    ]


def host_lines(plan: VxlanPlan) -> str:
    """Return the lines of /etc/hosts for all nodes, by their addresses on the data network."""
    addresses = {plan.node: plan.address}
    addresses |= {name: peer.address for name, peer in plan.peers.items()}
    return "".join(f"{address}\t{name}\n" for name, address in addresses.items())


def resolve_hosts(plan: VxlanPlan, timeout_s: float) -> dict[str, str]:
    """Return each peer's IPv4 address on the network below, by name.

    Raises:
        WireError: a name cannot be resolved in time.
    """
    deadline = time.monotonic() + timeout_s
    hosts: dict[str, str] = {}
    while True:
        for name, peer in plan.peers.items():
            if name not in hosts:
                with suppress(OSError):
                    hosts[name] = _resolve(peer.host)
        missing = [peer.host for name, peer in plan.peers.items() if name not in hosts]
        if not missing:
            return hosts
        if time.monotonic() > deadline:
            raise WireError(f"no IPv4 address of {', '.join(missing)} within {timeout_s:.0f} s")
        time.sleep(RESOLVE_INTERVAL_S)


def _resolve(host: str) -> str:
    found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    return str(found[0][4][0])


def data_mtu(hosts: Iterable[str]) -> int:
    """Return the largest packet of the data device, in bytes, that the network below carries to all these addresses."""
    mtu = min(map(_path_mtu, set(hosts)), default=LARGEST_MTU + OVERHEAD_BYTES)
    return min(mtu - OVERHEAD_BYTES, LARGEST_MTU)


def _path_mtu(host: str) -> int:
    """Return the largest packet, in bytes, that this machine can send to an address of the network below."""
    (route,) = run_json(["ip", "-json", "-4", "route", "get", host])
    (device,) = run_json(["ip", "-json", "link", "show", "dev", route["dev"]])
    said = [item["mtu"] for item in route.get("metrics", []) if "mtu" in item]
    return min([int(device["mtu"]), *map(int, said)])


def _remove_device() -> None:
    if DEVICE in (name for _, name in socket.if_nameindex()):
        run(["ip", "link", "delete", DEVICE])
