"""The whole stack on a kernel that has netem, whatever kernel this machine has.

User-mode Linux boots a Debian 13 guest with a Docker engine of its own, Compose v2 and Python 3.13. There
`guest_checks.py` uses gradwire as a user does, and notes what it finds; here each of its checks is one test.

The guest has one slow processor, and so has limits (measured): 1.7 GB/s between two containers without shaping; some
70 MB/s over a shaped netem link; 7 MB/s over an nfqueue link, one link at a time. Importing torch takes 8 s, 40 s on
three ranks at once. With the images there the test takes about six minutes, of which the host's part is half a minute.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import disks
import pytest
import uml
from guest_checks import CHECKS

from cluster import image
from cluster.engine import Engine

PROJECT_DIR = Path(__file__).resolve().parents[2]
ARTIFACTS = PROJECT_DIR / "runs" / "failed-tests" / "netem"
TIMEOUT_S = 900.0
IN_GUEST = "python3 /root/gradwire/tests/netem/guest_checks.py /host/results.jsonl"
COMMAND = f"cp -a /host/checkout /root/gradwire && cd /root/gradwire && {IN_GUEST}\n"


@dataclass(frozen=True)
class Outcome:
    """What a guest left behind.

    Attributes:
        ended: whether it came to its own end, in time, and the checks' program with exit code 0.
        results: check -> its line of the results.
        folder: with its console, the results and Docker's log, kept where a test fails.
    """

    ended: bool
    results: dict[str, dict[str, Any]]
    folder: Path


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """Boot one guest for all tests."""
    reason = uml.install()
    if reason:
        pytest.skip(reason)
    failed_before = request.session.testsfailed
    with _sigterm_as_interrupt(), tempfile.TemporaryDirectory(prefix="gradwire-netem-") as scratch:
        folder = Path(scratch) / "shared"
        folder.mkdir()
        try:
            found = _run_guest(Path(scratch), folder)
            yield found
        finally:
            interrupted = sys.exc_info()[0] is not None
            if interrupted or request.session.testsfailed > failed_before:
                _keep(folder)


@pytest.mark.parametrize("name", CHECKS)
def test_on_netem(outcome: Outcome, name: str) -> None:
    result = outcome.results.get(name)
    assert result is not None, f"the guest did not come to this check: {_tail(outcome.folder)}"
    print(json.dumps(result, indent=2))
    assert result["problems"] == []


def test_the_guest_came_to_its_own_end(outcome: Outcome) -> None:
    assert outcome.ended, _tail(outcome.folder)


def _run_guest(scratch: Path, folder: Path) -> Outcome:
    with _timed("checkout and images"):
        disks.copy_checkout(folder / "checkout")
        _build_node_image(folder / "checkout")
        image.ensure_base(Engine(), print)
        disks.build_guest_image(image.BASE_IMAGE)
    with _timed("disks"):
        root, node = disks.make_disks(scratch)
        disks.write_stand_in(folder / "image.tar")
        (folder / "command").write_text(COMMAND)
    with _timed("guest"):
        environ = {"host_folder": str(folder), "modules_folder": str(uml.MODULES_DIR)}
        guest = uml.Guest(root, node, "/sbin/netem-init", environ)
        in_time = uml.boot(guest, folder / "console.log", TIMEOUT_S)
    return Outcome(in_time and _read(folder / "exit_code") == "0\n", _results(folder), folder)


def _build_node_image(checkout: Path) -> None:
    """From the copy: what the guest has must be what its image was built from, whoever edits the original meanwhile."""
    subprocess.run([sys.executable, "-m", "cluster.image"], cwd=checkout, check=True)


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in _read(folder / "results.jsonl").splitlines()]
    return {line["check"]: line for line in lines}


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _tail(folder: Path) -> str:
    return "\n".join(["the console's end:", *_read(folder / "console.log").splitlines()[-30:]])


def _keep(folder: Path) -> None:
    """The small files: not the checkout, which is here, nor the disks."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for name in ("console.log", "results.jsonl", "dockerd.log"):
        if (folder / name).exists():
            shutil.copy(folder / name, ARTIFACTS)
    print(f"\nwhat the guest left is in {ARTIFACTS}")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.1f} s", flush=True)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A SIGTERM ends the test as Ctrl-C does, so that the guest goes with it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
