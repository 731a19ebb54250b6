"""Sends an image from this machine's engine to a host's, where it is another one there: no registry is needed."""

import subprocess
import threading

from cluster.base.errors import ClusterError
from cluster.base.subprocesses import run_bounded
from cluster.engine.client import Engine, docker_command
from cluster.engine.image import Report
from cluster.hosts.host_engine import HostEngine

SHIP_TIMEOUT_S = 3600.0  # 1.3 GB of image, or 7.5 with PyPI's torch


def ship_image(local: Engine, to: HostEngine, image: str, report: Report) -> bool:
    """See that a host has this image as it is here; returns whether it had to be sent.

    Raises:
        ClusterError: it could not be; in the words of the engine there.
    """
    if to.image_content(image) == local.image_content(image):
        return False
    report(f"sending {image} to host {to.host.name}")
    before = to.image_id(image)
    failure = _pipe(image, to)
    if failure or to.image_content(image) != local.image_content(image):
        raise ClusterError(
            f"{image} could not be sent to host {to.host.name}: {failure or 'it is another one there'}",
            _remedy(failure, to),
        )
    if before:
        run_bounded(
            [*docker_command(to), "image", "rm", before]
        )  # of no use any more; in use it stays
    return True


def _pipe(image: str, to: HostEngine) -> str:
    """`docker save` here into `docker load` there; what went wrong, or nothing."""
    save = subprocess.Popen(
        ["docker", "save", image], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    stop = threading.Timer(SHIP_TIMEOUT_S, save.kill)
    stop.start()
    try:
        with save:
            load = subprocess.run(
                [*docker_command(to), "load"],
                stdin=save.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
            assert save.stdout is not None
            save.stdout.close()  # or it would write for ever where the host has stopped reading
            said = load.stderr.strip() if load.returncode else ""
            complaint = save.stderr.read().decode(errors="replace").strip() if save.stderr else ""
    except BaseException:
        save.kill()
        raise
    finally:
        stop.cancel()
    return said or (complaint if save.returncode else "")


def _remedy(failure: str, to: HostEngine) -> str:
    if "no space left" in failure.lower():
        return f"on host {to.host.name}: docker system prune, or a larger disk"
    return f"ssh {to.host.ssh} docker info"
