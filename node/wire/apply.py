"""The verbs: make a node's links what the plan says, show what is in force, remove it all."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from node.wire import egress, htb, isolation, offload, replaying, routes, state, system
from node.wire.plan import parse_plan
from node.wire.shape import Shape, lay_out
from node.wire.state import State
from node.wire.strain import read_strain
from node.wire.system import NodeError
from node.wire.wires import WIRES, Wire, choose

Json = dict[str, Any]
Qdiscs = list[dict[str, Any]]


def apply(text: str) -> Json:
    """Make this node's links what the plan says: in place where there are links already.

    Returns:
        The report that docs/formats.md defines.

    Raises:
        PlanError: the text is no plan; nothing has been changed.
        NodeError: this node cannot do it. If it had begun, it has taken everything back.
    """
    plan = parse_plan(text)
    with alone() as first:
        replaying.refuse()
        device = system.find_device(plan.address)
        found = system.qdiscs()
        _refuse_foreign(device.name, found)
        before = _in_force(device.name, found)
        wire = choose(plan.wire, before.wire if before else "")
        shape = lay_out(plan, device, before.shape if before else None)
        if before is None and not first:
            _remove_all(device.name, found)
        now = bring_about(before, shape, wire)
        state.save(now)
        replaying.forget()
    return now.report


def bring_about(before: State | None, shape: Shape, wire: Wire) -> State:
    """Make this node's links what the shape says, whatever they were before.

    Raises:
        NodeError: this node cannot do it; then nothing is shaped any more.
    """
    try:
        return _change(before, shape, wire)
    except BaseException:
        _remove_all(shape.device.name, system.qdiscs())
        routes.remove(shape)
        raise


def show() -> Json:
    """The plan in force, its report, the kernel's counters, what strain there was, and what is not as it should be."""
    saved, fault = look()
    if saved is None:
        return {
            "plan": None,
            "report": None,
            "counters": {},
            "replayed": [],
            "lateness": None,
            "strain": read_strain(),
            "notes": [fault] if fault else [],
        }
    return {
        "plan": saved.shape.plan.document(),
        "report": saved.report,
        "counters": _counters(saved.shape),
        "replayed": replaying.pairs_now(),
        "lateness": WIRES[saved.wire].lateness(),
        "strain": read_strain(),
        "notes": WIRES[saved.wire].warnings(),
    }


def sent_bytes() -> dict[str, int]:
    """Bytes that each link that starts here has carried, by peer; nothing where none is in force."""
    saved = state.load()
    if saved is None:
        return {}
    counted = _counters(saved.shape)
    return {peer: counter["sent_bytes"] for peer, counter in counted.items()}


def look() -> tuple[State | None, str]:
    """The state in force, or None and what is wrong; that is empty where nothing is shaped, and nothing shall be."""
    saved, found = state.load(), system.qdiscs()
    if saved is None:
        return None, _leftovers(found)
    fault = _fault(saved, found) or replaying.fault()
    return (None, fault) if fault else (saved, "")


def trial() -> dict[str, str]:
    """For each wire, why this kernel cannot do it, found by trying; empty if it can."""
    return {name: wire.unavailable() for name, wire in WIRES.items()}


def clear() -> None:
    """Remove everything that `apply` made, however much of it there is."""
    with alone():
        replaying.refuse()
        found = system.qdiscs()
        saved = state.load()
        devices = {saved.shape.device.name} if saved else set(_our_devices(found))
        for device in devices or {""}:
            _remove_all(device, found)


def _counters(shape: Shape) -> dict[str, dict[str, int]]:
    """What the kernel has counted on each link that starts here, by peer."""
    device = shape.device.name
    classes = system.run_json(["tc", "-json", "-statistics", "class", "show", "dev", device])
    return egress.counters(shape, classes)


def _change(before: State | None, shape: Shape, wire: Wire) -> State:
    """Do what leads from the state before to the shape."""
    device, plan = shape.device, shape.plan
    old = before.shape if before else None
    old_wire = old if before and before.wire == wire.NAME else None
    if before and old_wire is None:
        WIRES[before.wire].stop(device.name, system.qdiscs())
    offloads = offload.read_offloads(device.name)
    original = before.offloads if before else offloads
    notes = wire.start(old_wire, shape)
    system.run_batch("tc", egress.tc_lines(old, shape) + wire.tc_lines(old_wire, shape))
    tcp, route_notes = routes.set_routes(old, shape)
    isolation.change(old, shape)
    notes += [*route_notes, offload.switch(device.name, plan.links, offloads, original)]
    report = {
        "node": plan.node,
        "device": device.name,
        "mtu": device.mtu,
        "wire": wire.NAME,
        "tcp": tcp,
        "links": [link._asdict() | {"wire": wire.NAME} for link in plan.links],
        "notes": [note for note in notes if note],
    }
    return State(report, shape, wire.NAME, original)


def _refuse_foreign(device: str, found: Qdiscs) -> None:
    """A root qdisc that somebody else made is not ours to remove; what a device has by default is numbered 0."""
    for row in found:
        if (
            row["dev"] == device
            and row.get("root")
            and row["handle"] not in ("0:", f"{htb.HANDLE}:")
        ):
            raise NodeError(
                f"{device} has a qdisc that is not ours ({row['kind']} {row['handle']}): "
                f"remove it with `tc qdisc del dev {device} root`"
            )


def _in_force(device: str, found: Qdiscs) -> State | None:
    """The state on the file, if the kernel still has all of it on this device."""
    saved = state.load()
    if saved is None or saved.shape.device.name != device or _fault(saved, found):
        return None
    return saved


def _fault(saved: State, found: Qdiscs) -> str:
    """What the kernel no longer has of the state on the file; empty if it has all of it."""
    device = saved.shape.device.name
    if device not in _our_devices(found):
        return f"{device} is no longer shaped (the node has been restarted?): apply the plan again"
    fault = WIRES[saved.wire].fault(device, found)
    return f"{fault}: apply the plan again" if fault else ""


def _leftovers(found: Qdiscs) -> str:
    devices = _our_devices(found)
    return f"{devices[0]} is shaped by no known plan: apply one or clear" if devices else ""


def _our_devices(found: Qdiscs) -> list[str]:
    return [row["dev"] for row in found if row.get("root") and row["handle"] == f"{htb.HANDLE}:"]


def _remove_all(device: str, found: Qdiscs) -> None:
    """Take back what there is of us, and forget it."""
    saved = state.load()
    for wire in WIRES.values():
        wire.stop(device, found)
    if device in _our_devices(found):
        system.run(["tc", "qdisc", "del", "dev", device, "root"])
    if saved and saved.shape.device.name in (name for _, name in socket.if_nameindex()):
        routes.remove(saved.shape)
        name = saved.shape.device.name
        offload.change(name, offload.read_offloads(name), saved.offloads)
    state.forget()
    replaying.forget()


@contextmanager
def alone() -> Iterator[bool]:
    """Keep whoever else changes this node waiting. Yields whether it is the first to: nothing of us is here."""
    state.FOLDER.mkdir(parents=True, exist_ok=True)
    with (state.FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = os.fstat(lock.fileno()).st_size == 0
        if first:
            lock.write("apply or clear has been here\n")
            lock.flush()
        yield first
