"""Copies an image from this machine's engine to hosts that lack it, or have another version, without a registry."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from cluster.base.errors import ClusterError
from cluster.base.processes import run_bounded
from cluster.engine.client import Engine, docker_command
from cluster.engine.image import Progress
from cluster.hosts.host_engine import HostEngine

SHIP_TIMEOUT_S = 3600.0  # 1.3 GB of image, or 7.5 with PyPI's torch


def ship_image(local: Engine, to: Sequence[HostEngine], image: str, report: Progress) -> bool:
    """Make sure that hosts have this image as it is here, all hosts at once; return whether it had to be sent.

    Raises:
        ClusterError: a host could not load it; quotes its engine.
    """
    content = local.image_content(image)
    others = [host for host in to if host.image_content(image) != content]
    if others:
        names = ", ".join(host.host.name for host in others)
        report(f"sending {image} to host{'s' if others[1:] else ''} {names}")
    before = [host.image_id(image) for host in others]
    deadline = time.monotonic() + SHIP_TIMEOUT_S
    with ExitStack() as ends:
        transfers = [ends.enter_context(_transfer(image, host)) for host in others]
        for host, (save, load) in zip(others, transfers, strict=True):
            failure = _failure(save, load, deadline)
            if failure or host.image_content(image) != content:
                why = failure or "the host loaded a different image"
                raise ClusterError(
                    f"{image} could not be sent to host {host.host.name}: {why}",
                    _remedy(failure, host),
                )
    for host, old in zip(others, before, strict=True):
        if old:  # the previous version; the engine keeps it while a container uses it
            run_bounded([*docker_command(host), "image", "rm", old])
    return bool(others)


Process = subprocess.Popen[str]


@contextmanager
def _transfer(image: str, to: HostEngine) -> Iterator[tuple[Process, Process]]:
    """Pipe `docker save` here into `docker load` on a host; neither process outlives the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["docker", "save", image], stdout=pipe, stderr=pipe, text=True) as save:
        try:
            with subprocess.Popen(
                [*docker_command(to), "load"],
                stdin=save.stdout,
                stdout=subprocess.DEVNULL,
                stderr=pipe,
                text=True,
            ) as load:
                assert save.stdout is not None
                save.stdout.close()  # else `save` would never notice that `load` has stopped reading
                try:
                    yield save, load
                finally:
                    load.kill()
        finally:
            save.kill()


def _failure(save: Process, load: Process, deadline: float) -> str:
    """Wait for both processes; return what went wrong, or an empty string."""
    try:
        _, said = load.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"not done in {SHIP_TIMEOUT_S:.0f} s"
    if load.returncode:
        return said.strip() or f"docker load: exit code {load.returncode}"
    assert save.stderr is not None
    complaint = save.stderr.read().strip()
    return complaint if save.wait() else ""


def _remedy(failure: str, to: HostEngine) -> str:
    if "no space left" in failure.lower():
        return f"on host {to.host.name}: docker system prune, or use a larger disk"
    return f"ssh {to.host.ssh} docker info"
