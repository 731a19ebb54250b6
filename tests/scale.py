"""What clusters of several sizes cost: prints a table, asserts nothing.

    python tests/scale.py                         # 4, 16 and 64 nodes, full mesh
    python tests/scale.py --nodes 16 --repeat 10

For each size: seconds of `up` with links; of `shape` to another profile, as a command and by the Python API on
connections that are open; memory that the machine has less of; what the idle cluster keeps of one processor busy. The
engine must be on this machine, with nothing else at work on it. Uses a cluster named t-scale.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from conformance import verb

from cluster import Cluster
from cluster.base.console import print_table
from cluster.links.link_spec import make_link_spec
from node.wire.host_counters import read_strain

NAME = "t-scale"
PROFILES = ("mobile", "wan")
REST_S, IDLE_S = 5.0, 10.0
HEADER = ["NODES", "LINKS", "UP s", "SHAPE s", "SHAPE, OPEN s", "MEMORY MB", "IDLE % OF A CORE"]


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
            verb("down", name=NAME)
            rows.append(row_of(nodes, args.repeat))
        finally:
            verb("down", name=NAME)
    print_table(HEADER, rows)


def row_of(nodes: int, repeat: int) -> list[str]:
    """What a cluster of so many nodes costs."""
    time.sleep(REST_S)
    before_mb = available_mb()
    up_s = seconds(lambda: verb("up", "--nodes", str(nodes), "--profile", "wan", name=NAME))
    time.sleep(REST_S)
    memory_mb, idle_pct = before_mb - available_mb(), busy_pct(IDLE_S)
    asked = [PROFILES[turn % 2] for turn in range(repeat)]
    command_s = [seconds(lambda p=p: verb("shape", "--profile", p, name=NAME)) for p in asked]
    cluster = Cluster(NAME)
    links = len(cluster.links().links)
    open_s = [
        seconds(lambda p=p: cluster.shape(make_link_spec(p, "full", 1, "auto"))) for p in asked
    ]
    cluster.close()
    figures = [f"{up_s:.1f}", f"{statistics.median(command_s):.2f}"]
    figures += [f"{statistics.median(open_s):.2f}", f"{memory_mb:.0f}", f"{idle_pct:.1f}"]
    return [str(nodes), str(links), *figures]


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def available_mb() -> float:
    """Memory that new programs could have, as the kernel reckons it."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1e3


def busy_pct(period_s: float) -> float:
    """What all processors together did in a while, in percent of one."""
    before = busy_s()
    time.sleep(period_s)
    return 100 * (busy_s() - before) / period_s


def busy_s() -> float:
    """Seconds that processors have worked since boot, added up."""
    return sum(core["total_s"] - core["idle_s"] for core in read_strain()["cores"])


if __name__ == "__main__":
    main()
