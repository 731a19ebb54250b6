"""Runs one command in a guest of its own that has the checkout and the node image."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import disks
import uml

from cluster.base.spec import IMAGE
from cluster.engine import image
from cluster.engine.client import Engine

CHECKOUT = "/root/gradwire"


def run_guest(scratch: Path, folder: Path, command: str, timeout_s: float) -> bool:
    """Boot a guest that runs one shell command in its copy of the checkout.

    Args:
        scratch: folder for its disks.
        folder: folder shared with the host, /host in the guest.
        command: the command; its standard output is the guest's console.
        timeout_s: limit for all that the guest does.

    Returns:
        Whether the guest shut down by itself in time, and the command ended with exit code 0.
    """
    with _timed("checkout and images"):
        disks.copy_checkout(folder / "checkout")
        _build_node_image(folder / "checkout")
        image.ensure_base(Engine(), print)
        disks.build_images(image.BASE_IMAGE)
    with _timed("disks"):
        root, node = disks.make_disks(scratch)
        disks.write_stand_in(folder / "image.tar")
        (folder / "command").write_text(
            f"cp -a /host/checkout {CHECKOUT} && cd {CHECKOUT} && {command}\n"
        )
    with _timed("guest"):
        environ = {
            "host_folder": uml.SHARED,
            "modules_folder": uml.MODULES_DIR,
            "node_image": IMAGE,
        }
        machine = uml.Guest(root, node, folder, "/sbin/netem-init", environ)
        in_time = uml.boot(machine, folder / "console.log", timeout_s)
    exit_code = folder / "exit_code"
    return in_time and exit_code.exists() and exit_code.read_text() == "0\n"


def _build_node_image(checkout: Path) -> None:
    """Build from the copy, so that the guest's image and checkout match even if the original is edited meanwhile."""
    subprocess.run([sys.executable, "-m", "cluster.image"], cwd=checkout, check=True)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.1f} s", flush=True)
