"""Copies an image from this machine's engine to hosts that lack it, or have another version, without a registry."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from cluster.base.errors import ClusterError
from cluster.engine.client import Engine
from cluster.engine.image import Progress
from cluster.hosts.remote_engine import RemoteEngine

SHIP_TIMEOUT_S = 3600.0  # 1.3 GB of image, or 7.5 with PyPI's torch


def ship_image(local: Engine, to: Sequence[RemoteEngine], image: str, report: Progress) -> bool:
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
        transfers = [ends.enter_context(_transfer(local, image, host)) for host in others]
        for host, (save, load) in zip(others, transfers, strict=True):
            failure = _failure(save, load, deadline)
            if failure:
                with suppress(ClusterError):  # the failure itself matters more
                    host.discard_image()
            else:
                host.accept_image(local, image)
            if failure or host.image_content(image) != content:
                why = failure or "the host loaded a different image"
                raise ClusterError(
                    f"{image} could not be sent to host {host.host.name}: {why}",
                    _remedy(failure, host),
                )
    for host, old in zip(others, before, strict=True):
        if old:  # the previous version; the engine keeps it while a container uses it
            host.forget_image(old)
    return bool(others)


Process = subprocess.Popen[str]


@contextmanager
def _transfer(local: Engine, image: str, to: RemoteEngine) -> Iterator[tuple[Process, Process]]:
    """Pipe the image from here to a host; neither process outlives the block."""
    pipe = subprocess.PIPE
    sends, takes = to.transfer_argv(local, image)
    with subprocess.Popen(sends, stdout=pipe, stderr=pipe, text=True) as save:
        try:
            with subprocess.Popen(
                takes,
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
        return reason(said) or f"exit code {load.returncode}"
    assert save.stderr is not None
    complaint = save.stderr.read().strip()
    return complaint if save.wait() else ""


def reason(said: str) -> str:
    """Return the line that names a full disk, else the last two: of a full disk, tar says a line for each file."""
    lines = said.strip().splitlines()
    full = [line for line in lines if "no space left" in line.lower()]
    return "; ".join(full[:1] or lines[-2:])


def _remedy(failure: str, to: RemoteEngine) -> str:
    if "no space left" in failure.lower():
        return f"on host {to.host.name}: {to.make_room}, or use a larger disk"
    return to.start_it
