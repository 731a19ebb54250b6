"""Measures the cost of clusters of several sizes: prints a table, asserts nothing.

    python tests/scale.py                         # 4, 16 and 64 nodes, full mesh
    python tests/scale.py --nodes 16 --repeat 10

For each size: seconds of `up` with links; of `shape` to another profile, as a command and with the Python API on open
connections; memory that the cluster takes from the machine; CPU load of the idle cluster, in percent of one CPU;
seconds of `verify`, which proves all links, and of the look at proved links with which a launch begins, 0 if they were
not proved. The engine must be on this machine, without other load. Uses a cluster named t-scale.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from conformance import verb

from cluster import Cluster
from cluster.base.console import print_table
from cluster.contract.prover import Prover
from cluster.links.link_spec import make_link_spec
from node.wire.host_counters import read_host_counters

NAME = "t-scale"
PROFILES = ("mobile", "wan")
REST_S, IDLE_S = 5.0, 10.0
HEADER = ["NODES", "LINKS", "UP s", "SHAPE s", "SHAPE, OPEN s", "MEMORY MB", "IDLE % OF A CORE"]
HEADER += ["PROOF s", "LOOK s"]


def main() -> None:
    """Measure every size, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--repeat", type=int, default=5, help="of shaping (default %(default)s)")
    args = parser.parse_args()
    rows = []
    for nodes in args.nodes:
        try:
            verb(NAME, "down")
            rows.append(row_of(nodes, args.repeat))
        finally:
            verb(NAME, "down")
    print_table(HEADER, rows)


def row_of(nodes: int, repeat: int) -> list[str]:
    """Return the table's row for a cluster of this size."""
    time.sleep(REST_S)
    before_mb = available_mb()
    up_s = seconds(lambda: verb(NAME, "up", "--nodes", str(nodes), "--profile", "wan"))
    time.sleep(REST_S)
    memory_mb, idle_pct = before_mb - available_mb(), busy_pct(IDLE_S)
    proof_s, look_s = proof_and_look()
    asked = [PROFILES[turn % 2] for turn in range(repeat)]
    command_s = [seconds(partial(verb, NAME, "shape", "--profile", name)) for name in asked]
    cluster = Cluster(NAME)
    links = len(cluster.links().links)
    specs = [make_link_spec(name, "full", 1, "auto") for name in asked]
    open_s = [seconds(partial(cluster.shape, spec)) for spec in specs]
    cluster.close()
    figures = [f"{up_s:.1f}", f"{statistics.median(command_s):.2f}"]
    figures += [f"{statistics.median(open_s):.2f}", f"{memory_mb:.0f}", f"{idle_pct:.1f}"]
    return [str(nodes), str(links), *figures, f"{proof_s:.1f}", f"{look_s:.1f}"]


def proof_and_look() -> tuple[float, float]:
    """Return the seconds that it takes to prove all links, and then to look at them."""
    cluster = Cluster(NAME)
    contract = cluster.verify()
    print(contract.verdict(), *contract.notes, sep="\n")
    prover = Prover(cluster.engine, cluster.spec, cluster.fleet, cluster.console)
    started = time.monotonic()
    looked = prover.look(cluster.links())
    look_s = time.monotonic() - started
    print(f"look: {looked.changed or 'nothing has changed'}")
    cluster.close()
    return contract.seconds, look_s if looked.look else 0.0


def seconds(action: Callable[[], object]) -> float:
    """Return the duration of an action."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def available_mb() -> float:
    """Return the memory available to new programs, by the kernel's estimate."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1e3


def busy_pct(period_s: float) -> float:
    """Return the load of all CPUs together over a period, in percent of one CPU."""
    before = busy_s()
    time.sleep(period_s)
    return 100 * (busy_s() - before) / period_s


def busy_s() -> float:
    """Return the busy seconds of all CPUs since boot, added up."""
    return sum(core.total_s - core.idle_s for core in read_host_counters().cores)


if __name__ == "__main__":
    main()
