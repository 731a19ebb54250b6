"""Benchmarks of clusters over several hosts: prints figures, asserts nothing.

    python tests/bench_hosts.py up --nodes 4 --repeat 5     # two hosts, against one with half of the nodes
    python tests/bench_hosts.py goodput --mbyte-s 0 125     # between nodes, against that between their hosts
    python tests/bench_hosts.py sizes --hosts 4 --nodes 4 16 64 128

The hosts are containers of this machine with an sshd and a Docker engine of their own (tests/shared/docker_hosts.py).

up: seconds of `cluster.up --profile wan` on two hosts, and on one with half of the nodes, in turn; images are there
before. With `--pinned`, each host and all that runs on it have half of one processor, and the command another one for
itself, as if all were machines of their own; otherwise all share all processors.

goodput: one TCP connection between nodes of two hosts, through Swarm's VXLAN, and between the hosts. `--mbyte-s` limits
what both hosts send, as a network between them would; 0 leaves it at what this machine's processors carry.

sizes: seconds of `up`, `shape`, a look at all links and `down`, and memory, by the number of nodes. `--out FOLDER`
keeps sizes.csv and sizes.png (for the picture: pip install -e '.[report]').
"""

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from conformance import verb
from scale import available_mb, seconds

from cluster import Cluster
from cluster.base.console import print_table
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import IMAGE, project_name
from cluster.contract.look import look_at_links
from cluster.reporting.render import VEGA_LITE, converter, small_png

sys.path.insert(0, str(PROJECT_DIR / "tests" / "shared"))
from containers import PREFIX  # noqa: E402
from docker_hosts import DockerHost, docker, start_machines, write_hosts_file  # noqa: E402

NAME = "t-hosts"
NETWORK = f"{PREFIX}bench-hosts"
REST_S, FLOW_S = 3.0, 10
PERIOD_US = 10_000  # short, so that a host is never still for longer than 5 ms
PROFILES = ("mobile", "wan")
START_IN_OWN_CGROUP = (
    "/usr/sbin/sshd; own=$(sed -n 's/.*:cpuset[^:]*://p' /proc/self/cgroup); "
    "exec dockerd --storage-driver overlay2 ${own:+--cgroup-parent $own}"
)
SIZES = ("nodes", "links", "up_s", "shape_s", "look_s", "down_s", "memory_mb")


class PinnedHost(DockerHost):
    """A host whose engine starts containers in its own cgroup, so that limits of processors hold for these, too."""

    command = ("sh", "-c", START_IN_OWN_CGROUP)


def main() -> None:
    """Run the chosen measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="what", required=True)
    up = kinds.add_parser("up")
    up.add_argument("--nodes", type=int, default=4)
    up.add_argument("--repeat", type=int, default=5)
    up.add_argument("--pinned", action="store_true")
    goodput = kinds.add_parser("goodput")
    goodput.add_argument("--mbyte-s", type=float, nargs="+", default=[0.0, 125.0])
    goodput.add_argument("--repeat", type=int, default=3)
    sizes = kinds.add_parser("sizes")
    sizes.add_argument("--hosts", type=int, default=4)
    sizes.add_argument("--nodes", type=int, nargs="+", default=[4, 16, 64, 128])
    sizes.add_argument("--out", type=Path)
    args = parser.parse_args()
    {"up": compare_ups, "goodput": compare_goodputs, "sizes": measure_sizes}[args.what](args)


@contextmanager
def hosts_with_image(
    number: int, kind: type[DockerHost] = DockerHost
) -> Iterator[list[DockerHost]]:
    """Yield that many hosts, which reach each other and have the nodes' image; takes the cluster down."""
    names = [f"host{n}" for n in range(number)]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(
            start_machines(kind, NETWORK, partial(make_folder, root), names)
        )
        stack.callback(verb, NAME, "down")
        bring_up(hosts, number)
        verb(NAME, "down")
        yield hosts


def make_folder(root: Path, name: str) -> Path:
    """Return a new folder below another one."""
    (root / name).mkdir()
    return root / name


def bring_up(hosts: Sequence[DockerHost], nodes: int, *links: str) -> float:
    """Return the seconds of one `up`."""
    words = ("--hosts", str(hosts_file(hosts)), "--nodes", str(nodes), *links)
    return seconds(partial(verb, NAME, "up", *words))


def hosts_file(hosts: Sequence[DockerHost]) -> Path:
    """Write the hosts file for these hosts into the folder of the first one."""
    path: Path = write_hosts_file(hosts[0].folder, hosts)
    return path


def compare_ups(args: argparse.Namespace) -> None:
    """Print the seconds of `up` on two hosts and on one, and the median of their ratios."""
    pairs = []
    with hosts_with_image(2, PinnedHost if args.pinned else DockerHost) as hosts:
        if args.pinned:
            pin(hosts)
        for _ in range(args.repeat):
            two, one = up_s(hosts, args.nodes), up_s(hosts[:1], args.nodes // 2)
            pairs.append((two, one))
            print(f"two hosts {two:6.2f} s   one {one:6.2f} s", flush=True)
    ratio = statistics.median(two / one for two, one in pairs)
    print(f"{args.nodes} nodes on two hosts ÷ {args.nodes // 2} on one: {ratio:.2f}")


def pin(hosts: Sequence[DockerHost]) -> None:
    """Give each of two hosts half of the first processor, and this program and its verbs the last one."""
    half = ("--cpuset-cpus", 0, "--cpu-period", PERIOD_US, "--cpu-quota", PERIOD_US // 2)
    for host in hosts:
        docker("update", *half, host.container)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def up_s(hosts: Sequence[DockerHost], nodes: int) -> float:
    """Return the seconds of one `up`; takes the cluster down again."""
    time.sleep(REST_S)
    taken_s = bring_up(hosts, nodes, "--profile", "wan")
    verb(NAME, "down")
    return taken_s


def compare_goodputs(args: argparse.Namespace) -> None:
    """Print the goodput between nodes and between their hosts, for each limit of the hosts' network."""
    rows = []
    with hosts_with_image(2) as hosts:
        bring_up(hosts, 2)
        for limit_mbyte_s in sorted(args.mbyte_s):  # none first: a limit stays until the next one
            for host in hosts:
                limit(host, limit_mbyte_s)
            for _ in range(args.repeat):
                over, under = overlay_mbyte_s(hosts), underlay_mbyte_s(hosts)
                asked = f"{limit_mbyte_s:g}" if limit_mbyte_s else "none"
                rows.append([asked, f"{over:.1f}", f"{under:.1f}", f"{over / under:.3f}"])
    print_table(["LIMIT MB/s", "NODES MB/s", "HOSTS MB/s", "RATIO"], rows)


def limit(host: DockerHost, mbyte_s: float) -> None:
    """Limit what a host sends to others, if the limit is not 0."""
    if mbyte_s:
        rate = ("rate", f"{mbyte_s * 8:g}mbit", "burst", "256kb", "latency", "50ms")
        host.exec("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate)


def overlay_mbyte_s(hosts: Sequence[DockerHost]) -> float:
    """Return the goodput from node2 to node1, which are on different hosts."""
    one, other = (f"{project_name(NAME)}-node{n}" for n in (1, 2))
    hosts[0].exec("docker", "exec", "--detach", one, "iperf3", "--server", "--one-off")
    time.sleep(1)
    flow = ("iperf3", "--client", "node1", "--time", FLOW_S, "--omit", 1, "--json")
    return goodput_mbyte_s(hosts[1].exec("docker", "exec", other, *flow))


def underlay_mbyte_s(hosts: Sequence[DockerHost]) -> float:
    """Return the goodput from the second host to the first."""
    beside = ("run", "--rm", "--cap-drop", "ALL", "--entrypoint", "iperf3")
    server = ("--detach", "--network", f"container:{hosts[0].container}", IMAGE)
    docker(*beside, *server, "--server", "--one-off")
    time.sleep(1)
    flow = ("--client", hosts[0].address, "--time", FLOW_S, "--omit", 1, "--json")
    said = docker(*beside, "--network", f"container:{hosts[1].container}", IMAGE, *flow)
    return goodput_mbyte_s(said)


def goodput_mbyte_s(said: str) -> float:
    """Return the goodput that iperf3's receiver counted."""
    return float(json.loads(said)["end"]["sum_received"]["bits_per_second"]) / 8e6


def measure_sizes(args: argparse.Namespace) -> None:
    """Print and keep a row for each number of nodes."""
    rows = []
    with hosts_with_image(args.hosts) as hosts:
        for nodes in args.nodes:
            rows.append(row_of(hosts, nodes))
            print(dict(zip(SIZES, rows[-1], strict=True)), flush=True)
            if args.out:
                keep(args.out, rows)


def keep(folder: Path, rows: Sequence[Sequence[float]]) -> None:
    """Write the rows so far as a table and as a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "sizes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([SIZES, *rows])
    points = [dict(zip(SIZES, row, strict=True)) for row in rows]
    picture: bytes = converter().vegalite_to_png(picture_of(points), vl_version=VEGA_LITE, scale=2)
    (folder / "sizes.png").write_bytes(small_png(picture))


def picture_of(points: Sequence[Mapping[str, float]]) -> dict[str, object]:
    """Return two charts as a Vega-Lite specification: seconds and memory by nodes, both axes logarithmic."""
    nodes = {"field": "nodes", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    verbs = [name for name in SIZES if name.endswith("_s")]
    kinds = {"fold": verbs, "as": ["verb", "seconds"]}
    seconds_axis = {"field": "seconds", "type": "quantitative", "scale": {"type": "log"}}
    memory_axis = {"field": "memory_mb", "type": "quantitative", "scale": {"type": "log"}}
    line = {"type": "line", "point": True}
    return {
        "data": {"values": list(points)},
        "background": "white",
        "hconcat": [
            {
                "transform": [kinds],
                "mark": line,
                "encoding": {"x": nodes, "y": seconds_axis, "color": {"field": "verb"}},
            },
            {
                # Of few nodes it may be below what the machine's own memory drifts by meanwhile.
                "transform": [{"filter": "datum.memory_mb > 0"}],
                "mark": line,
                "encoding": {"x": nodes, "y": memory_axis | {"title": "memory, MB"}},
            },
        ],
    }


def row_of(hosts: Sequence[DockerHost], nodes: int) -> list[float]:
    """Return the figures of one size, in the order of SIZES."""
    time.sleep(REST_S)
    before_mb = available_mb()
    taken_s = bring_up(hosts, nodes, "--profile", "wan")
    time.sleep(REST_S)
    memory_mb = before_mb - available_mb()
    shapes_s = [seconds(partial(verb, NAME, "shape", "--profile", name)) for name in PROFILES]
    with closing(Cluster(NAME)) as cluster:
        state = cluster.links()
        time.sleep(REST_S)
        look = look_at_links(cluster.fleet, state)
        print(
            f"{nodes} nodes, look: {len(look.failed)} of {len(state.links)} links are off",
            flush=True,
        )
    down_s = seconds(partial(verb, NAME, "down"))
    figures = (taken_s, statistics.median(shapes_s), look.seconds, down_s, memory_mb)
    return [nodes, len(state.links), *(round(value, 1) for value in figures)]


if __name__ == "__main__":
    main()
