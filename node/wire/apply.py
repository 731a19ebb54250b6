"""The wire's verbs: bring a node's links to a plan, show what is in force, remove everything."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from node.wire import (
    commands,
    egress,
    htb,
    isolation,
    neighbours,
    netem,
    routes,
    segmentation,
    state,
)
from node.wire.backends import WIRES, Wire, choose
from node.wire.commands import Qdisc, WireError
from node.wire.host_counters import read_host_counters
from node.wire.kernel_settings import read_settings, refuse_other_slow_start
from node.wire.layout import Layout, lay_out
from node.wire.playback import lock
from node.wire.state import State
from protocol.link_report import LinkCounters, LinkReport, Shown
from protocol.node_plan import parse_plan


def apply(text: str) -> LinkReport:
    """Make this node's links match the plan; existing links are changed in place.

    Raises:
        FormatError: the text is not a plan; nothing has been changed.
        WireError: this node cannot do it. Changes that it had begun are undone, and nothing is shaped any more.
    """
    plan = parse_plan(text)
    with exclusive_lock() as first:
        lock.refuse()
        device = commands.find_device(plan.address)
        found = commands.qdiscs()
        _refuse_foreign(device.name, found)
        before = _in_force(device.name, found)
        wire = choose(plan.wire, before.wire if before else "")
        layout = lay_out(plan, device, before.layout if before else None)
        if before is None and not first:
            _remove_all(device.name, found)
        now = bring_about(before, layout, wire)
        state.save(now)
        lock.forget()
    return now.report


def bring_about(before: State | None, layout: Layout, wire: Wire) -> State:
    """Make this node's links match the layout, whatever they were before.

    Raises:
        WireError: this node cannot do it; then nothing is shaped any more. If its settings differ from what the plan
            wants, nothing has been changed.
    """
    refuse_other_slow_start(layout.plan)
    try:
        return _change(before, layout, wire)
    except BaseException:
        _remove_all(layout.device.name, commands.qdiscs())
        routes.remove(layout)
        neighbours.remove(layout)
        raise


def show() -> Shown:
    """Return the plan in force, its report, the kernel's counters and settings, and what is wrong."""
    saved, fault = look()
    if saved is None:
        return Shown(
            plan=None,
            report=None,
            counters={},
            replayed=[],
            received={},
            lateness=None,
            host=read_host_counters(),
            settings=read_settings(),
            notes=[fault] if fault else [],
        )
    return Shown(
        plan=saved.layout.plan,
        report=saved.report,
        counters=link_counters(saved.layout),
        replayed=lock.pairs_now(),
        received=WIRES[saved.wire].counters(saved.layout),
        lateness=WIRES[saved.wire].lateness(),
        host=read_host_counters(),
        settings=read_settings(),
        notes=WIRES[saved.wire].warnings(),
    )


def sent_bytes() -> dict[str, int]:
    """Return the bytes that each outgoing link that is in force has carried, by peer."""
    saved = state.load()
    if saved is None:
        return {}
    counted = link_counters(saved.layout)
    return {peer: counter.sent_bytes for peer, counter in counted.items()}


def look() -> tuple[State | None, str]:
    """Return (state in force, ""), or (None, what is wrong); (None, "") if nothing is shaped and nothing should be."""
    saved, found = state.load(), commands.qdiscs()
    if saved is None:
        return None, _leftovers(found)
    fault = _fault(saved, found) or lock.fault()
    return (None, fault) if fault else (saved, "")


def trial() -> dict[str, str]:
    """Return for each wire why this kernel cannot run it, found by trying; empty if it can."""
    with exclusive_lock():  # `apply` tries in the same places
        return {name: wire.unavailable() for name, wire in WIRES.items()}


def link_counters(layout: Layout) -> dict[str, LinkCounters]:
    """Return what the kernel has counted on each outgoing link that is in force, by peer."""
    device = layout.device.name
    return egress.counters(layout, commands.class_counts(device), commands.queue_counts(device))


def clear() -> None:
    """Remove everything that `apply` made, even if only a part of it is left."""
    with exclusive_lock():
        lock.refuse()
        found = commands.qdiscs()
        saved = state.load()
        devices = {saved.layout.device.name} if saved else set(_our_devices(found))
        for device in devices or {""}:
            _remove_all(device, found)


def _change(before: State | None, layout: Layout, wire: Wire) -> State:
    """Bring the node from the state `before` to the layout."""
    device, plan = layout.device, layout.plan
    old = before.layout if before else None
    old_wire = old if before and before.wire == wire.NAME else None
    if before and old_wire is None:
        WIRES[before.wire].stop(device.name, commands.qdiscs())
    offloads = segmentation.read(device.name)
    original = before.offloads if before else offloads
    notes = wire.start(old_wire, layout)
    commands.run_batch("tc", egress.tc_lines(old, layout) + wire.tc_lines(old_wire, layout))
    neighbours.set_entries(old, layout)
    tcp, route_notes = routes.set_routes(old, layout)
    isolation.change(old, layout)
    outgoing = plan.outgoing().values()
    segmentation.change(device.name, offloads, segmentation.wanted(outgoing, layout.frame))
    notes += [*route_notes, segmentation.note(outgoing, layout.frame)]
    report = LinkReport(
        node=plan.node,
        device=device.name,
        mtu=device.mtu,
        wire=wire.NAME,
        tcp=tcp,
        links=[link._replace(wire=wire.NAME) for link in plan.links],
        notes=[note for note in notes if note],
    )
    return State(report, layout, wire.NAME, original, state.new_laying())


def _refuse_foreign(device: str, found: list[Qdisc]) -> None:
    """Refuse a root qdisc that somebody else made: it is not ours to remove. A device's default qdisc has handle 0:."""
    for qdisc in found:
        is_root = qdisc.is_root and qdisc.device == device
        if is_root and qdisc.handle not in ("0:", f"{htb.HANDLE}:"):
            raise WireError(
                f"{device} has a qdisc that is not ours ({qdisc.kind} {qdisc.handle}): "
                f"remove it with `tc qdisc del dev {device} root`"
            )


def _in_force(device: str, found: list[Qdisc]) -> State | None:
    """Return the saved state if the kernel still has all of it on this device."""
    saved = state.load()
    if saved is None or saved.layout.device.name != device or _fault(saved, found):
        return None
    return saved


def _fault(saved: State, found: list[Qdisc]) -> str:
    """Return what the kernel has lost of the saved state; empty if it has all of it."""
    device = saved.layout.device.name
    if device not in _our_devices(found):
        return f"{device} is no longer shaped (the node has been restarted?): apply the plan again"
    fault = egress.fault(saved.layout, found) or WIRES[saved.wire].fault(saved.layout, found)
    return f"{fault}: apply the plan again" if fault else ""


def _leftovers(found: list[Qdisc]) -> str:
    devices = _our_devices(found)
    return f"{devices[0]} is shaped by no known plan: apply one or clear" if devices else ""


def _our_devices(found: list[Qdisc]) -> list[str]:
    """Return the devices that we have shaped, without netem's own device, which its wire removes."""
    roots = [one for one in found if one.is_root and one.handle == f"{htb.HANDLE}:"]
    return [one.device for one in roots if one.device != netem.IFB]


def _remove_all(device: str, found: list[Qdisc]) -> None:
    """Remove everything of ours on this device, and the state file."""
    saved = state.load()
    for wire in WIRES.values():
        wire.stop(device, found)
    if device in _our_devices(found):
        commands.run(["tc", "qdisc", "del", "dev", device, "root"])
    if saved and saved.layout.device.name in (name for _, name in socket.if_nameindex()):
        routes.remove(saved.layout)
        neighbours.remove(saved.layout)
        name = saved.layout.device.name
        segmentation.change(name, segmentation.read(name), saved.offloads)
    state.forget()
    lock.forget()


@contextmanager
def exclusive_lock() -> Iterator[bool]:
    """Hold the lock for changes of this node. Yields whether it was never held before: then nothing of ours is here."""
    state.FOLDER.mkdir(parents=True, exist_ok=True)
    with (state.FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = os.fstat(lock.fileno()).st_size == 0
        if first:
            lock.write("apply or clear has been here\n")
            lock.flush()
        yield first
