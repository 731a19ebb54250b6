"""Creates or updates a cluster; rolls back a creation that fails."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from cluster.base.console import Console
from cluster.base.errors import ClusterError, SlotTaken
from cluster.base.spec import ClusterSpec, name_flag
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.ownership import check_may_create
from cluster.engine.resources import ResourceRequest, check_room
from cluster.hosts.connect import (
    compose_for,
    connect_engine,
    has_ended,
    has_lost,
    hosts_of,
    provide_image,
)
from cluster.hosts.hosts_file import Hosts
from cluster.hosts.node_placement import place
from cluster.hosts.record import write_record
from cluster.lifecycle.reconcile import reconcile, refuse_without_keys
from cluster.lifecycle.removal import remove_until_quiet
from cluster.run.request import Request
from cluster.shaping.link_state import LinkState
from cluster.ssh.fleet import Fleet

MOST_AVOIDED = 8


@dataclass(frozen=True)
class Created:
    """A cluster that is up, with its fleet logged in and its links in force; `was_there`: whether it existed before."""

    spec: ClusterSpec
    fleet: Fleet
    link_state: LinkState
    was_there: bool


def inspect_cluster(
    engine: Engine, request: Request, avoided: Collection[int] = ()
) -> tuple[ClusterSpec | None, ClusterSpec]:
    """Return the cluster as it is (None if there is none) and as it should be; a free choice of slot skips `avoided`.

    Raises:
        UsageError: the request does not fit the machines, or what already exists.
    """
    existing = engine.cluster(request.name)
    if existing is not None:
        spec = request.spec(existing, ())
    else:
        slot = engine.slot_of_network(request.name)
        there = None if slot is None else ClusterSpec(request.name, slot=slot)
        spec = request.spec(there, engine.slots(beside=request.name) | set(avoided))
    _check_fits(engine, spec, request.resources)
    return existing, spec


def _check_fits(engine: Engine, spec: ClusterSpec, resources: ResourceRequest) -> None:
    """Refuse nodes without a place on any host, and limits beyond its resources; raises as `inspect_cluster`."""
    for part, nodes in engine.parts(spec):
        if resources.cpus or resources.memory_bytes:
            check_room(resources, *part.room(), nodes, part.where or "this machine")


def create_cluster(
    engine: Engine,
    request: Request,
    compose: ComposeUp,
    console: Console,
    *,
    force: bool = False,
    avoided: Collection[int] = (),
) -> Created:
    """Create a cluster, or reconcile the existing one with the request; `compose` may have been started already.

    With `force` also while a run uses its nodes, or over networks and volumes that this checkout did not create. The
    `avoided` slots turned out to be taken.

    Raises:
        ClusterError: what happened and what to try. A creation that fails is rolled back.
    """
    existing, spec = inspect_cluster(engine, request, avoided)
    if existing is not None and not force:
        refuse_without_keys(spec, engine.containers(spec.name))
    is_second_try = bool(avoided)  # then what is left under this name may be ours
    if existing is None and not force and not is_second_try:
        check_may_create(engine, spec.name)
    if _ensure_image(engine, spec, console):
        existing, spec = inspect_cluster(engine, request, avoided)  # the image took minutes
    hosts = hosts_of(spec.name, request.hosts)  # before a rollback, which removes the record
    try:
        if hosts is not None:
            write_record(spec.name, hosts, place([node.name for node in spec.nodes], hosts.hosts))
        with console.progress("up") as report:
            report(f"{spec.size} nodes")
            made = reconcile(
                engine, spec, request.link_spec, request.resources, compose, console, force=force
            )
        if existing is None and engine.note:
            console.say(engine.note)
        return Created(spec, *made, was_there=existing is not None)
    except BaseException as error:
        if existing is not None:
            raise
        compose.end()
        _roll_back(engine, spec.name, hosts, console)
        chosen = request.slot is None and len(avoided) < MOST_AVOIDED
        if not (isinstance(error, SlotTaken) and chosen):
            raise
    # Another cluster was quicker, and is perhaps gone again by now; or a foreign network or program has the slot.
    console.say(f"slot {spec.slot} is taken; trying the next")
    avoided, request = {*avoided, spec.slot}, replace(request, hosts=hosts)
    with compose_for(spec.name, engine) as again:
        return create_cluster(engine, request, again, console, force=force, avoided=avoided)


def _roll_back(engine: Engine, name: str, hosts: Hosts | None, console: Console) -> None:
    """Remove a half-created cluster; only say it if that fails, for why the creation failed matters more."""
    try:
        engine = _remove_from_those_that_answer(engine, name, hosts)
        for words in engine.left_behind(name):
            console.say(words)
        if has_lost(engine):
            up, down = (f"python -m cluster.{verb}{name_flag(name)}" for verb in ("up", "down"))
            back = f"once all hosts are back, {up} makes it whole, or {down} removes it"
            console.say(f"the keys of {name!r} stay here: {back}")
    except ClusterError as failure:
        console.say(f"could not remove all of {name!r}: {failure}")


def _remove_from_those_that_answer(engine: Engine, name: str, hosts: Hosts | None) -> Engine:
    """Remove a cluster, from the other hosts if one is lost; return the engine of these; raises ClusterError.

    A silent host may have cost its nodes already while its connection lasts: then that ends only during the removal.
    """
    most = len(engine.engines)  # each of them may be lost during one try
    for tried in range(most + 1):
        if has_ended(engine):
            engine = connect_engine(name, hosts, partly=True)
        try:
            remove_until_quiet(engine, name)
            break
        except ClusterError:
            if tried == most or not has_ended(engine):
                raise
    return engine


def _ensure_image(engine: Engine, spec: ClusterSpec, console: Console) -> bool:
    """Provide the current image; return whether it had to be built or sent, which takes minutes."""
    with console.progress("image") as report:
        return provide_image(engine, spec.image, report)
