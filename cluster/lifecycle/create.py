"""Creates or updates a cluster; rolls back a creation that fails."""

from collections.abc import Collection
from dataclasses import dataclass

from cluster.base.console import Console
from cluster.base.errors import SlotTaken
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.resources import check_room
from cluster.hosts.connect import compose_for, provide_image
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.record import write_host
from cluster.lifecycle.reconcile import reconcile
from cluster.lifecycle.removal import remove_until_quiet
from cluster.run.request import Request
from cluster.shaping.link_state import LinkState
from cluster.ssh.fleet import Fleet

MOST_AVOIDED = 8


@dataclass(frozen=True)
class Created:
    """A cluster that is up: its fleet is logged in, its links are in force; whether it was there before."""

    spec: ClusterSpec
    fleet: Fleet
    link_state: LinkState
    was_there: bool


def inspect_cluster(
    engine: Engine, request: Request, avoided: Collection[int] = ()
) -> tuple[ClusterSpec | None, ClusterSpec]:
    """The cluster as it is (None: there is none), and as it should be. A free choice of slot skips the `avoided` ones.

    Raises:
        UsageError: it cannot be, on this machine or beside what there is.
    """
    resources = request.resources
    if resources.cpus or resources.memory_bytes:
        check_room(resources, *engine.room())
    existing = engine.cluster(request.name)
    if existing is not None:
        return existing, request.spec(existing, ())
    slot = engine.slot_of_network(request.name)
    there = None if slot is None else ClusterSpec(request.name, slot=slot)
    return None, request.spec(there, engine.slots(beside=request.name) | set(avoided))


def create_cluster(
    engine: Engine,
    request: Request,
    compose: ComposeUp,
    console: Console,
    *,
    force: bool = False,
    avoided: Collection[int] = (),
) -> Created:
    """Bring a cluster up, or bring the one that is there to what is asked; by a compose that may be ready already.

    With `force` also while a run uses its nodes. The `avoided` slots turned out to be taken.

    Raises:
        ClusterError: what happened and what to try. A cluster that was not there before is not there afterwards.
    """
    existing, spec = inspect_cluster(engine, request, avoided)
    if _ensure_image(engine, spec, console):
        existing, spec = inspect_cluster(engine, request, avoided)  # that took minutes
    try:
        if isinstance(engine, HostEngine):
            write_host(spec.name, engine.host)
        with console.progress("up") as report:
            report(f"{spec.size} nodes")
            made = reconcile(
                engine, spec, request.link_spec, request.resources, compose, console, force=force
            )
        return Created(spec, *made, was_there=existing is not None)
    except BaseException as error:
        if existing is not None:
            raise
        compose.end()
        remove_until_quiet(engine, spec.name, console)
        chosen = request.slot is None and len(avoided) < MOST_AVOIDED
        if not (isinstance(error, SlotTaken) and chosen):
            raise
    # Another cluster that was quicker, perhaps gone again by now; or a network or a program that is not ours.
    console.say(f"slot {spec.slot} is somebody else's: to the next")
    avoided = {*avoided, spec.slot}
    with compose_for(spec.name, engine) as again:
        return create_cluster(engine, request, again, console, force=force, avoided=avoided)


def _ensure_image(engine: Engine, spec: ClusterSpec, console: Console) -> bool:
    """See that the image is there and today's; returns whether that took a while."""
    with console.progress("image") as report:
        return provide_image(engine, spec.image, report)
