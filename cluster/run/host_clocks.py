"""Measures how far the clocks of other hosts are ahead of this machine's, by asking a node of each over SSH.

A node's answer is taken to be from the middle of its round trip, so it is wrong by half of that at most.
"""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cluster.accounting.clocks import MOST_AHEAD_S, HostClock
from cluster.base.errors import NodeError
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess

ROUNDS = 8  # the quickest counts; the first contains the start of Python
PATIENCE_S = 20.0  # contains the start of Python
# One process answers all questions, as starting one takes longer than most round trips.
TELL = (
    "import sys, time\nfor _ in iter(sys.stdin.readline, ''): print(repr(time.time()), flush=True)"
)


def measure_clocks(fleet: Fleet, hosts: Mapping[str, str]) -> dict[str, HostClock]:
    """Return the clocks by node, without those of hosts that do not answer properly.

    Args:
        fleet: connections to the nodes.
        hosts: the host of each node that is on another one than this machine.
    """
    asked = {host: node for node, host in hosts.items()}
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as pool:
        found = dict(zip(asked, pool.map(lambda n: _ask(fleet, n), asked.values()), strict=True))
    told = {node: found[host] for node, host in hosts.items()}
    return {node: clock for node, clock in told.items() if clock}


def _ask(fleet: Fleet, node: str) -> HostClock | None:
    found: list[HostClock] = []
    with suppress(NodeError, ValueError):
        process = fleet.start(node, ("python3", "-c", TELL))
        process.patience_s = PATIENCE_S
        try:
            found.extend(_answers(process))  # keeps those before an error
        finally:
            process.close()
    return min(found, key=lambda clock: clock.error_s, default=None)


def _answers(process: RemoteProcess) -> Iterator[HostClock]:
    """Yield what each answer says; raises ValueError if one is no time."""
    lines = process.lines()
    for _ in range(ROUNDS):
        asked_at, began = time.time(), time.monotonic()
        process.write(b"\n")
        said = next(lines, None)
        if said is None:
            return
        half_s = (time.monotonic() - began) / 2
        ahead_s = float(said) - asked_at - half_s
        if not math.isfinite(ahead_s) or abs(ahead_s) > MOST_AHEAD_S:
            raise ValueError(ahead_s)
        yield HostClock(round(ahead_s, 6), round(half_s, 6))
