"""Tests of links on a machine whose processors other machines take: they tell nothing, and are made again.

Only a test that has failed, while more of the processors was taken than `cluster.overload` allows a run, and at most
twice; what happened is said. What fails on a machine that has its processors is a failure.
"""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from cluster.overload import STEAL_PCT

MOST_TRIES = 3
QUIET_S, MOST_WAIT_S = 5.0, 120.0


def stolen_ticks() -> tuple[float, float]:
    """Time of all processors that other machines took, and all there was, in ticks since the start."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(ticks[7]), float(sum(ticks))


def stolen_pct(since: tuple[float, float]) -> float:
    """How much of the processors' time was taken since a reading."""
    stolen, total = (now - then for now, then in zip(stolen_ticks(), since, strict=True))
    return 100 * stolen / total if total else 0.0


def wait_until_quiet() -> None:
    """Until nobody takes the processors, or for two minutes."""
    deadline = time.monotonic() + MOST_WAIT_S
    while time.monotonic() < deadline:
        since = stolen_ticks()
        time.sleep(QUIET_S)
        if stolen_pct(since) < STEAL_PCT:
            return


def say_repeated(config: pytest.Config, what: str, pct: float) -> None:
    """So that nobody misses it: also where pytest keeps what a test or a fixture prints."""
    said = f"\n{what} is made again: other machines took {pct:.0f} % of the processors"
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(said, file=sys.stderr, flush=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:  # noqa: ANN401
    """Run one test, and again where it failed for want of processors."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for tries in range(1, MOST_TRIES + 1):
        since = stolen_ticks()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        pct = stolen_pct(since)
        passed = not any(report.failed for report in reports)
        if passed or pct < STEAL_PCT or tries == MOST_TRIES:
            break
        say_repeated(item.config, item.nodeid, pct)
        wait_until_quiet()
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
