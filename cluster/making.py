"""Making a cluster what is asked of it, whole or not at all: what fails half-way leaves nothing behind."""

from dataclasses import dataclass

from cluster.compose_process import ComposeUp
from cluster.console import Console
from cluster.engine import Engine
from cluster.errors import ClusterError
from cluster.fleet import Fleet
from cluster.image import ensure_image, require_image
from cluster.node_limits import check_room
from cluster.reconcile import reconcile
from cluster.removal import remove_half_made
from cluster.request import Request
from cluster.shaping import Shape
from cluster.spec import IMAGE, ClusterSpec


@dataclass(frozen=True)
class Made:
    """A cluster that is up: its fleet is logged in, its links are in force; whether it was there before."""

    spec: ClusterSpec
    fleet: Fleet
    shape: Shape
    was_there: bool


def look(engine: Engine, request: Request) -> tuple[ClusterSpec | None, ClusterSpec]:
    """What there is of a cluster, and what it shall be.

    Raises:
        UsageError: it cannot be, on this machine or beside what there is.
    """
    wish = request.wish
    if wish.cpus or wish.memory_bytes:
        check_room(wish, *engine.room())
    existing = engine.cluster(request.name)
    taken = engine.slots(beside=request.name) if existing is None else ()
    return existing, request.spec(existing, taken)


def make_cluster(engine: Engine, request: Request, compose: ComposeUp, console: Console) -> Made:
    """Bring a cluster up, or bring the one that is there to what is asked; by a compose that may be ready already.

    Raises:
        ClusterError: what happened and what to try. A cluster that was not there before is not there afterwards.
    """
    existing, spec = look(engine, request)
    if _ensure_image(engine, spec, console):
        existing, spec = look(engine, request)  # that took minutes
    try:
        with console.progress("up") as report:
            report(f"{spec.size} nodes")
            made = reconcile(engine, spec, request.wanted, request.wish, compose, console)
        return Made(spec, *made, was_there=existing is not None)
    except BaseException as error:
        if existing is not None or _is_anothers(engine, spec, compose):
            raise
        compose.end()
        remove_half_made(engine, spec.name, console)
        if not (isinstance(error, ClusterError) and _is_outrun(engine, request, spec)):
            raise
    console.say(f"another cluster took slot {spec.slot} meanwhile: to the next")
    with ComposeUp(spec.name) as again:
        return make_cluster(engine, request, again, console)


def _ensure_image(engine: Engine, spec: ClusterSpec, console: Console) -> bool:
    """See that the image is there and today's; returns whether it had to be built."""
    with console.progress("image") as report:
        built = ensure_image(engine, report)
    if spec.image != IMAGE:
        require_image(engine, spec.image)
    return built


def _is_anothers(engine: Engine, spec: ClusterSpec, compose: ComposeUp) -> bool:
    """Whether a cluster that was not there a moment ago is not of our making."""
    return not compose.has_begun and engine.cluster(spec.name) is not None


def _is_outrun(engine: Engine, request: Request, spec: ClusterSpec) -> bool:
    """Whether another cluster got the slot that was free when we chose it."""
    return request.slot is None and spec.slot in engine.slots(beside=spec.name)
