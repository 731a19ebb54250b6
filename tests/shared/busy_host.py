"""Reruns tests of links that fail while the host is too busy to tell anything about links.

A test is rerun only if it failed while the host was more limited than `cluster.shaping.host_load` allows for a run:
other machines took CPU time, timers were late, or all CPUs were busy, which no test of links needs. The host is
observed by independent code here, not by the product under test. That covers a whole test, but a moment can spoil a
link: so a test is also rerun if a processor stood still for longer than a link may be wrong by, or if its failure has
the product's sentence "the host, and not the links, was the limit".
At most two reruns; each is printed. If a test still fails, has that sentence, and this code saw why, it is skipped with
that sentence: such links cannot be measured on such a host. Any other failure stays a failure.
"""

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest
from _pytest.runner import runtestprotocol

from cluster.shaping.host_load import STEAL_PCT, TIMERS_LATE_MS

MOST_TRIES = 3
QUIET_S, MOST_WAIT_S = 5.0, 30.0
TICK_S = 0.01
STALL_MS = 20.0  # of one timer: a packet that late spoils a mean of a hundred round trips
IDLE_PCT = 10.0  # share of CPU time; above it, CPUs have time left
SOURCE = "    ", ">"  # how lines of the test's own source begin in a report
SENTENCE = re.compile(r"the host, and not the links, was the limit[^\"\n]*")


class Watch:
    """Observes the host's load during the `with` block."""

    def __enter__(self) -> Self:
        self._since = processor_ticks()
        self._ticks, self._late_s, self._worst_s = 0, 0.0, 0.0
        self._over = threading.Event()
        places = [None, *sorted(os.sched_getaffinity(0))]
        self._threads = [
            threading.Thread(target=self._tick, args=(cpu,), daemon=True) for cpu in places
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _tick(self, cpu: int | None) -> None:
        """Note how late a timer is: on any processor, for the mean, or on one of them."""
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})  # of this thread
        began = time.monotonic()
        while not self._over.wait(TICK_S):
            now = time.monotonic()
            late_s = now - began - TICK_S
            self._worst_s = max(self._worst_s, late_s)
            if cpu is None:
                self._ticks, self._late_s = self._ticks + 1, self._late_s + late_s
            began = now

    def limits(self) -> str:
        """Return why measurements of this time may be wrong; empty if the host is not the cause."""
        said = []
        if (stolen_pct := self.stolen_pct()) > STEAL_PCT:
            said.append(f"other machines took {stolen_pct:.0f} % of the processors")
        if (late_ms := self.late_ms()) > TIMERS_LATE_MS:
            said.append(f"timers were {late_ms:.1f} ms late")
        if (idle_pct := self._pct("idle")) < IDLE_PCT:
            said.append(f"the processors were busy for {100 - idle_pct:.0f} % of the time")
        return "; ".join(said)

    def stall(self) -> str:
        """Return how long a processor stood still at most, if that may have spoilt a link; else ''."""
        worst_ms = 1000 * self._worst_s
        return f"a timer was {worst_ms:.0f} ms late" if worst_ms > STALL_MS else ""

    def late_ms(self) -> float:
        """Return the mean lateness of a timer."""
        return 1000 * self._late_s / max(1, self._ticks)

    def stolen_pct(self) -> float:
        """Return the share of CPU time that other machines took."""
        return self._pct("stolen")

    def _pct(self, name: str) -> float:
        passed = {key: now - self._since[key] for key, now in processor_ticks().items()}
        return 100 * passed[name] / passed["total"] if passed["total"] else 0.0


def processor_ticks() -> dict[str, int]:
    """Return the time of all CPUs since boot, in ticks: idle, stolen by other machines, and total."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return {"idle": ticks[3] + ticks[4], "stolen": ticks[7], "total": sum(ticks)}


def wait_until_quiet() -> None:
    """Wait until the host is no longer limited, or for half a minute."""
    deadline = time.monotonic() + MOST_WAIT_S
    while time.monotonic() < deadline:
        with Watch() as watch:
            time.sleep(QUIET_S)
        if not watch.limits():
            return


def say_repeated(config: pytest.Config, what: str, why: str) -> None:
    """Print that something is rerun, even if pytest captures the output of a test or fixture."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{what} is made again: {why}", file=sys.stderr, flush=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:  # noqa: ANN401
    """Run one test, and rerun it if it failed for lack of CPU time."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for tries in range(1, MOST_TRIES + 1):
        with Watch() as watch:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        seen = watch.limits() if failed else ""
        why = seen or next((said for report in failed if (said := _sentence(report))), "")
        why = why or (watch.stall() if failed else "")
        if not why or tries == MOST_TRIES:
            break
        say_repeated(item.config, item.nodeid, why)
        wait_until_quiet()
    for report in failed if seen else ():
        _skip_where_the_host_was_the_limit(report, seen)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _sentence(report: pytest.TestReport) -> str:
    """Return what the product says of the host in a failed test's report; empty if nothing."""
    lines = [line for line in report.longreprtext.splitlines() if not line.startswith(SOURCE)]
    found = SENTENCE.search("\n".join(lines))
    return found[0] if found else ""


def _skip_where_the_host_was_the_limit(report: pytest.TestReport, seen: str) -> None:
    if sentence := _sentence(report):
        path, line, _ = report.location
        reason = f"not told in {MOST_TRIES} tries ({seen}): {sentence}"
        report.outcome, report.longrepr = "skipped", (path, line or 0, reason)
