"""Checks that a cluster belongs to this checkout, and that no other Compose project uses its name."""

from collections.abc import Sequence

from cluster.base.errors import ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec, name_flag
from cluster.engine.client import Engine
from cluster.engine.container import Container


def is_of_checkout(container: Container) -> bool:
    """Return whether a node was brought up from this checkout, or its Compose labels do not say from where."""
    return container.working_dir in ("", str(PROJECT_DIR))


def check_checkout(containers: Sequence[Container]) -> None:
    """Refuse a cluster of another checkout, because that one has the keys.

    Raises:
        ClusterError: names the checkout.
    """
    for container in containers:
        if not is_of_checkout(container):
            raise ClusterError(
                f"cluster {container.cluster!r} was brought up from {container.working_dir}",
                "use that checkout, or another name: --name NAME",
            )


def check_project(engine: Engine, spec: ClusterSpec) -> None:
    """Refuse a Compose project that has someone else's containers: Compose would treat them as ours.

    Raises:
        ClusterError: names the containers.
    """
    strangers = engine.strangers(spec.name)
    if strangers:
        raise ClusterError(
            f"the Compose project {spec.project!r} has containers that are no nodes of ours: "
            f"{', '.join(strangers)}",
            "use another name for the cluster: --name NAME",
        )


def check_may_remove(engine: Engine, name: str) -> None:
    """Refuse to remove a cluster, network or volume that this checkout did not create.

    Raises:
        ClusterError: names the owning checkouts, or the networks and volumes.
    """
    containers = engine.containers(name)
    others = sorted({c.working_dir for c in containers if not is_of_checkout(c)})
    if others:
        raise ClusterError(
            f"cluster {name!r} was brought up from {', '.join(others)}",
            "remove it there, or here all the same: --force",
        )
    if not containers:
        _check_left(engine, name, "remove it there, or here all the same: --force")


def check_may_create(engine: Engine, name: str) -> None:
    """Refuse to create a cluster that would take over a network or volume which this checkout did not create.

    A rollback or a later `down` would remove it. The cluster has no containers.

    Raises:
        ClusterError: names the networks and volumes.
    """
    take_over = f"python -m cluster.up{name_flag(name)} --force"
    other = "use another name: --name NAME, or remove it there"
    _check_left(engine, name, f"{other}; or take it over, and what is in it: {take_over}")


def _check_left(engine: Engine, name: str, hint: str) -> None:
    """Refuse networks and volumes of a cluster without containers, unless this checkout has its state folder."""
    if ClusterSpec(name).state_dir.exists():
        return
    # Neither says which checkout made it; a volume may hold results of `--shared` that were not fetched.
    found = {"network": engine.networks(name), "volume": engine.labelled_volumes(name)}
    if left := [f"{kind} {', '.join(names)}" for kind, names in found.items() if names]:
        raise ClusterError(f"this checkout has not made {' and '.join(left)}", hint)
