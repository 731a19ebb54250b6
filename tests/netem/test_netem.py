"""The whole stack on a kernel that has netem, whatever kernel this machine has.

User-mode Linux boots a Debian 13 guest with its own Docker engine, Compose v2 and Python 3.13. There `guest_checks.py`
uses gradwire as a user would, and records its findings; here each of its checks is one test.

The guest has one slow processor, which limits it (measured): 1.7 GB/s between two containers without shaping; about
70 MB/s over a shaped netem link; 7 MB/s over an nfqueue link, one link at a time. Importing torch takes 8 s, 40 s on
three ranks at once. With existing images the test takes three to four minutes with the slow checks, half a minute of
that on the host; two more with the nightly ones.
"""

import json
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uml
from busy_host import Watch, say_repeated, wait_until_quiet
from guest import run_guest
from guest_checks import CHECKS, NIGHTLY, SLOW

from cluster.shaping.host_load import STEAL_PCT

PROJECT_DIR = Path(__file__).resolve().parents[2]
ARTIFACTS = PROJECT_DIR / "runs" / "failed-tests" / "netem"
TIMEOUT_S = 1800.0
ENDS = {list(CHECKS)[0], list(CHECKS)[-1]}
COMMAND = (
    "PYTHONPATH=. PYTHONFAULTHANDLER=1 python3 tests/netem/guest_checks.py /host/results.jsonl"
)


@dataclass(frozen=True)
class Outcome:
    """What a guest left behind.

    Attributes:
        ended: whether the guest shut down by itself in time, and the checks' program ended with exit code 0.
        results: check -> its line of the results.
        folder: the folder with its console, results and Docker's log, which are kept if a test fails.
    """

    ended: bool
    results: dict[str, dict[str, Any]]
    folder: Path

    def is_good(self, checks: Sequence[str]) -> bool:
        """Return whether these checks ran and found nothing."""
        found = [self.results.get(name, {"problems": ["missing"]})["problems"] for name in checks]
        return self.ended and not any(found)


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """Boot one guest for all tests."""
    reason = uml.unavailable()
    if reason:
        pytest.skip(reason)
    # The first check brings a cluster up and the last takes it down, so both always run.
    asked = {
        item.callspec.params["name"] for item in request.session.items if hasattr(item, "callspec")
    }
    checks = [name for name in CHECKS if name in asked or name in ENDS]
    failed_before = request.session.testsfailed
    with _sigterm_as_interrupt(), tempfile.TemporaryDirectory(prefix="gradwire-netem-") as scratch:
        folder = Path(scratch) / "shared"
        try:
            yield _boot(request.config, Path(scratch), folder, checks)
        finally:
            interrupted = sys.exc_info()[0] is not None
            if interrupted or request.session.testsfailed > failed_before:
                _keep(folder)


def _boot(config: pytest.Config, scratch: Path, folder: Path, checks: Sequence[str]) -> Outcome:
    """Run a guest; run another if it fails while other machines take this machine's processors."""
    for tries in (1, 2):
        folder.mkdir()
        with Watch() as watch:
            ended = run_guest(scratch, folder, f"{COMMAND} {shlex.join(checks)}", TIMEOUT_S)
        outcome = Outcome(ended, _results(folder), folder)
        # The guest has priority over everything else here on its processor: only other machines' work matters to it.
        if outcome.is_good(checks) or tries == 2 or watch.stolen_pct() < STEAL_PCT:
            break
        say_repeated(config, "all of it", watch.limits())
        _keep(folder)
        shutil.rmtree(folder)
        wait_until_quiet()
    return outcome


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    marks = ((pytest.mark.slow, SLOW), (pytest.mark.nightly, NIGHTLY))
    return [mark for mark, names in marks if name in names]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in CHECKS])
def test_on_netem(outcome: Outcome, name: str) -> None:
    result = outcome.results.get(name)
    assert result is not None, f"the guest did not come to this check: {_tail(outcome.folder)}"
    print(json.dumps(result, indent=2))
    assert result["problems"] == []


def test_the_guest_came_to_its_own_end(outcome: Outcome) -> None:
    assert outcome.ended, _tail(outcome.folder)


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in _read(folder / "results.jsonl").splitlines()]
    return {line["check"]: line for line in lines}


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _tail(folder: Path) -> str:
    return "\n".join(["the console's end:", *_read(folder / "console.log").splitlines()[-30:]])


def _keep(folder: Path) -> None:
    """Keep the small files: not the checkout, which is here, nor the disks."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for name in ("console.log", "results.jsonl", "dockerd.log"):
        if (folder / name).exists():
            shutil.copy(folder / name, ARTIFACTS)
    print(f"\nwhat the guest left is in {ARTIFACTS}")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let a SIGTERM end the test as Ctrl-C does, so that the guest ends with it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
