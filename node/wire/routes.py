"""Routes to every node: direct to neighbours, via them to others, with the plan's congestion control.

In a container, `net.ipv4.tcp_congestion_control` takes only what the host allows everybody; a route with `congctl`
needs NET_ADMIN alone.

If nodes are isolated, only neighbours can be reached; other traffic is refused at once. Only TCP still goes hop by
hop to other nodes, for the reason given in node.wire.isolation: those routes are in a table of our own, and a rule
leads TCP there.
"""

from pathlib import Path

from node.wire.commands import CommandError, main_routes, run_batch, run_json
from node.wire.devconf import send_redirects
from node.wire.layout import Layout
from protocol.node_plan import NodePlan

DEFAULT_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
TCP_TABLE = "6777"


def set_routes(before: Layout | None, after: Layout) -> tuple[str, list[str]]:
    """Route to each node with the plan's congestion control, without redirects to shorter ways.

    Returns:
        The congestion control that connections to them now use, and notes if anything differs from the plan.
    """
    if before:
        _remove_routes(before, addresses(before.plan) - addresses(after.plan))
        if before.plan.isolated:
            _remove_tcp_routes()
    tcp, note = _set_routes(after)
    return tcp, [note, send_redirects(after.device.name, on=False)]


def _set_routes(after: Layout) -> tuple[str, str]:
    try:
        run_batch("ip", route_lines(after, after.plan.tcp))
    except CommandError as error:
        if "congestion" not in str(error):
            raise
        if after.plan.isolated:
            _remove_tcp_routes()
        run_batch("ip", route_lines(after, ""))
        actual = DEFAULT_CONGESTION_CONTROL.read_text().strip()
        return actual, f"this kernel has no {after.plan.tcp}: connections to the peers use {actual}"
    return after.plan.tcp, ""


def addresses(plan: NodePlan) -> set[str]:
    """Return the addresses of all nodes that get a route."""
    neighbours = {peer.address for peer in plan.peers.values()}
    return neighbours | {route.address for route in plan.routes.values()}


def route_lines(layout: Layout, algorithm: str) -> list[str]:
    """Return one route per node; a neighbour's address is on the same network, so its route is direct."""
    option = f" congctl {algorithm}" if algorithm else ""
    device, plan = layout.device.name, layout.plan
    direct = [
        f"route replace {peer.address}/32 dev {device}{option}" for peer in plan.peers.values()
    ]
    hops = [
        f"route replace {route.address}/32 via {plan.peers[route.via].address} dev {device}{option}"
        for route in plan.routes.values()
    ]
    if not plan.isolated:
        return direct + hops
    closed = [f"route replace unreachable {route.address}/32" for route in plan.routes.values()]
    rule = f"rule add priority {TCP_TABLE} ipproto tcp lookup {TCP_TABLE}"
    return [*direct, *closed, *(f"{line} table {TCP_TABLE}" for line in hops), rule]


def remove(layout: Layout) -> None:
    """Remove the routes to all nodes, as far as they exist, and allow redirects again."""
    send_redirects(layout.device.name, on=True)
    _remove_routes(layout, addresses(layout.plan))
    _remove_tcp_routes()


def _remove_routes(layout: Layout, gone: set[str]) -> None:
    device = layout.device.name
    there = main_routes() if gone else []
    ours = [one for one in there if one.destination in gone and one.device in (device, None)]
    run_batch("ip", [f"route del {one.kind} {one.destination}/32" for one in ours])


def _remove_tcp_routes() -> None:
    rows = run_json(["ip", "-json", "-4", "rule", "show"])
    ours = [row for row in rows if row["table"] == TCP_TABLE]
    lines = [f"rule del priority {TCP_TABLE}" for _ in ours]
    run_batch("ip", [*lines, f"route flush table {TCP_TABLE}"] if ours else [])
