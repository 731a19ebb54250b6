"""Benchmarks of our overhead, as ratios measured in turn: prints a table, asserts nothing.

    python tests/bench.py up --nodes 3            # cluster.up against a bare compose up of the same file
    python tests/bench.py launch                  # to the first training step, against `docker exec` by hand
    python tests/bench.py wire                    # what a link carries and costs, by packet size
    python tests/bench.py losses                  # what a link loses if it takes super-packets whole, and if not
    python tests/bench.py live --nodes 16         # the cost of a run's live view, against --no-live

Uses a cluster named t-bench. Machines are noisy: use a quiet one, and read the medians.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numbered_datagrams

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec, project_name
from cluster.engine.compose_up import compose_command, up_argv
from cluster.run.rank_placement import place_ranks, rank_environment
from cluster.ssh.keys import ensure_keys
from node.wire.segmentation import super_packet_bytes
from protocol.link import Link

NAME = "t-bench"
NODES = [f"{project_name(NAME)}-node{n}" for n in (1, 2)]
REST_S, FLOW_S, LOSSES_S = 3.0, 4, 10
PORT = "5300"
FRAME = 1514
TICKS = os.sysconf("SC_CLK_TCK")
LIVE_REST_S = 60
STEPS = ["--strategy", "fedavg", "--set", "H=20", "--steps", "2"]
Json = dict[str, Any]
Sample = tuple[float, float, Json]


def main() -> None:
    """Run the chosen measurement; print each figure and the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["up", "launch", "wire", "losses", "live"])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="of the training of `live`")
    args = parser.parse_args()
    if args.what == "wire":
        wire_table(args.repeat)
        return
    if args.what == "losses":
        loss_table(args.repeat)
        return
    if args.what == "live":
        live_table(args.nodes, args.repeat, args.steps)
        return
    measure = {"up": pair_of_ups, "launch": pair_of_launches}[args.what]
    pairs = []
    try:
        for _ in range(args.repeat):
            pairs.append(measure(args.nodes))
            print(f"ours {pairs[-1][0]:6.2f} s   bare {pairs[-1][1]:6.2f} s", flush=True)
    finally:
        verb("down")
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(
        f"{args.what}, {args.nodes} nodes: median {ours:.2f} s, bare {bare:.2f} s, ratio {ratio:.2f}"
    )


def pair_of_ups(nodes: int) -> tuple[float, float]:
    """Return the seconds of `cluster.up` with links, and of compose alone with the same file and existing keys."""
    come_to_rest()
    started = time.monotonic()
    status = verb("up", "--nodes", str(nodes), "--profile", "mobile")
    ours = time.monotonic() - started
    slot = (status["nodes"][0]["ssh_port"] - 22000) // 100
    spec = ClusterSpec(NAME, nodes, slot)
    with tempfile.TemporaryDirectory() as folder:
        document = Path(shutil.copy(spec.state_dir / "compose.yml", folder))
        come_to_rest()
        ensure_keys(spec)
        started = time.monotonic()
        argv = up_argv(compose_command(), NAME, str(document))
        subprocess.run(argv, check=True, capture_output=True)
        bare = time.monotonic() - started
    return ours, bare


def come_to_rest() -> None:
    """Take the cluster down, and wait until the engine and the kernel have cleaned up."""
    verb("down")
    time.sleep(REST_S)


def pair_of_launches(nodes: int) -> tuple[float, float]:
    """Return the seconds to rank 0's first step: with cluster.launch, and with `docker exec` on every node."""
    verb("up", "--nodes", str(nodes), "--profile", "mobile")
    started = time.time()
    summary = verb("launch", "--no-verify", *STEPS)
    metrics = PROJECT_DIR / "runs" / summary["run"] / "metrics" / "node1.jsonl"
    return first_step(metrics.read_text()) - started, by_hand(nodes)


def by_hand(nodes: int) -> float:
    """Start the same ranks with `docker exec`; return the seconds to the first step."""
    started = time.time()
    ranks = []
    spec = ClusterSpec(NAME, nodes)
    places = place_ranks([node.name for node in spec.nodes])
    for place in places:
        environ = rank_environment(place, places, (), "hand", "/tmp/hand", 60, silence_s=60) | {
            "GLOO_SOCKET_IFNAME": "eth0"
        }
        flags = [word for key, value in environ.items() for word in ("--env", f"{key}={value}")]
        argv = ["docker", "exec", *flags, f"{project_name(NAME)}-{place.node}", "nice", "-n", "19"]
        ranks.append(
            subprocess.Popen(
                [*argv, "python3", "-m", "node.train", *STEPS], stdout=subprocess.DEVNULL
            )
        )
    assert [rank.wait() for rank in ranks] == [0] * nodes
    read = ["docker", "exec", f"{project_name(NAME)}-node1", "cat", "/tmp/hand/metrics.jsonl"]
    seconds = (
        first_step(subprocess.run(read, check=True, capture_output=True, text=True).stdout)
        - started
    )
    for node in spec.nodes:
        subprocess.run(
            ["docker", "exec", f"{project_name(NAME)}-{node.name}", "rm", "-r", "/tmp/hand"],
            check=True,
        )
    return seconds


def wire_table(repeat: int) -> None:
    """Print the throughput of one TCP connection over a link of 10 ms, and the wire's CPU time per GB.

    For each rate, runs with super-packets as the link takes them alternate with runs in single frames; last comes a
    comparison with no wire at all.
    """
    try:
        verb("up", "--nodes", "2")
        print("asked  packet  MB/s  delayer s/GB  machine s/GB  backlog bytes/packet")
        for rate in (10, 65, 125, 625):
            for cut in (False, True) * repeat:
                shape(rate, delay_ms=10)
                packet = FRAME if cut else largest_packet(rate)
                if cut:
                    set_largest_packet(packet)
                flow = measured_flow()
                words = "  ".join(f"{value:.1f}" for value in flow)
                print(f"{rate:5}  {packet:6}  {words}", flush=True)
        pairs = []
        for _ in range(repeat):
            verb("shape", "--clear")
            bare = measured_flow()[0]
            shape(10_000, delay_ms=1)
            pairs.append((measured_flow()[0], bare))
        ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"no rate, 1 ms: {ours:.1f} MB/s, no wire {bare:.1f}, ratio {ours / bare:.2f}")
    finally:
        verb("down")


def loss_table(repeat: int) -> None:
    """Print the share of datagrams that a link of 10 ms loses, and how many in a row.

    For each rate and loss, runs in frames, as a link with losses has them, alternate with runs in the super-packets
    that it would have without losses.
    """
    try:
        verb("up", "--nodes", "2")
        print("rate  loss %  packet  lost %  in a row")
        for rate, loss_pct in itertools.product((20, 65), (0.1, 1, 10)):
            for whole in (False, True) * repeat:
                shape(rate, 10, loss_pct)
                packet = largest_packet(rate) if whole else FRAME
                if whole:
                    set_largest_packet(packet)
                found = lost_datagrams(packet // FRAME, 0.7e6 * rate)
                words = f"{found['lost_pct']:6.3f}  {found['in_a_row']:8.2f}"
                print(f"{rate:4}  {loss_pct:6}  {packet:6}  {words}", flush=True)
    finally:
        verb("down")


def lost_datagrams(segments: int, bytes_per_s: float) -> Json:
    """Send numbered datagrams from node1 to node2, so many in one packet; return what was lost."""
    count = int(bytes_per_s / numbered_datagrams.PAYLOAD * LOSSES_S)
    program = Path(numbered_datagrams.__file__).read_text()
    argv = ["docker", "exec", "--interactive", NODES[1], "python3", "-", "receive", PORT]
    with subprocess.Popen(
        [*argv, str(count)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as receiver:
        assert receiver.stdin is not None and receiver.stdout is not None
        receiver.stdin.write(program)
        receiver.stdin.close()
        receiver.stdout.readline()  # it listens
        words = ["send", "node2", PORT, str(count), str(segments), str(bytes_per_s)]
        argv = ["docker", "exec", "--interactive", NODES[0], "python3", "-", *words]
        subprocess.run(argv, input=program, text=True, check=True)
        found: Json = json.loads(receiver.stdout.read())
    return found


def live_table(nodes: int, repeat: int, steps: int) -> None:
    """Alternate runs with and without the live view; print their wall time, and the CPU time used meanwhile.

    Two kinds: a training, for the wall time, and idle ranks, for the CPU time, as every second of it shows there.
    """
    try:
        verb("up", "--nodes", str(nodes), "--profile", "mobile")
        for kind, program in live_programs(steps).items():
            pairs = []
            for turn in range(repeat):
                ways = [[], ["--no-live"]]
                # machines drift, so neither is always first
                order = ways[::-1] if turn % 2 else ways
                found = {bool(flags): live_launch(program, *flags) for flags in order}
                pairs.append((found[False], found[True]))
                print_live(kind, *pairs[-1])
            walls = [live[0] / bare[0] for live, bare in pairs]
            cores = [live[1] / live[0] - bare[1] / bare[0] for live, bare in pairs]
            print(
                f"{kind}, {nodes} nodes: wall time, ratio of medians {ratio_of_medians(pairs):.4f},"
                f" median of ratios {statistics.median(walls):.4f};"
                f" {100 * statistics.median(cores):.2f} % of a core more"
            )
    finally:
        verb("down")


def live_programs(steps: int) -> dict[str, list[str]]:
    """Return what is launched: a training's options, and a program that sleeps."""
    rest = Path(tempfile.mkdtemp()) / "rest.py"
    rest.write_text(f"import time\ntime.sleep({LIVE_REST_S})\n")
    return {"training": ["--steps", str(steps)], "rest": ["--", str(rest)]}


def live_launch(program: list[str], *flags: str) -> Sample:
    """Return the run's wall time, the machine's CPU time meanwhile, and the last document of the live view."""
    time.sleep(REST_S)
    before = machine_s()
    summary = verb("launch", "--no-verify", *flags, *program)
    worked_s = machine_s() - before
    live = Path(summary["folder"]) / "live.json"
    return summary["wall_s"], worked_s, json.loads(live.read_text()) if live.exists() else {}


def print_live(kind: str, live: Sample, bare: Sample) -> None:
    """Print one pair of runs."""
    own = " ".join(f"{key} {live[2].get(key)}" for key in ("nodes_cpu_pct", "host_cpu_pct"))
    print(
        f"{kind:8}  live {live[0]:6.2f} s, {live[1]:6.2f} s of processors   "
        f"without {bare[0]:6.2f} s, {bare[1]:6.2f} s   {own}",
        flush=True,
    )


def ratio_of_medians(pairs: list[tuple[Sample, Sample]]) -> float:
    """Return the ratio of the median wall times."""
    live_s, bare_s = (
        statistics.median(one[0] for one in column) for column in zip(*pairs, strict=True)
    )
    return float(live_s / bare_s)


def shape(rate_mbyte_s: float, delay_ms: float, loss_pct: float = 0.0) -> None:
    """Set all links to the same rate, delay and loss."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as profile:
        profile.write(f"rate_mbyte_s: {rate_mbyte_s}\ndelay_ms: {delay_ms}\nbuffer_ms: 50\n")
        profile.write(f"loss_pct: {loss_pct}\n")
        profile.flush()
        verb("shape", "--profile", profile.name)


def largest_packet(rate_mbyte_s: float) -> int:
    """Return the largest packet, in bytes, that the links of `shape` take whole."""
    link = Link("node1", "node2", rate_mbyte_s, 10.0, 0.0, 0.0, 50.0)
    return super_packet_bytes(link, FRAME)


def set_largest_packet(size: int) -> None:
    """Make the queues of both nodes cut packets that are larger than this into frames."""
    for node in NODES:
        for queue in json.loads(inside(node, "tc", "-json", "qdisc", "show", "dev", "eth0")):
            if queue["kind"] == "tbf":
                words = ["parent", queue["parent"], "handle", queue["handle"], "tbf"]
                words += ["rate", "1000tbit", "burst", str(size), "limit", "32000000"]
                inside(node, "tc", "qdisc", "change", "dev", "eth0", *words)


def measured_flow() -> tuple[float, float, float, float]:
    """Return goodput node1 -> node2 in MB/s, CPU seconds per GB (delayer, machine), and bytes per queued packet."""
    inside(NODES[1], "iperf3", "--server", "--daemon", "--one-off")
    before = delayer_s(), machine_s()
    client = ["iperf3", "--client", "node2", "--time", str(FLOW_S), "--json"]
    flow = subprocess.Popen(["docker", "exec", NODES[0], *client], stdout=subprocess.PIPE)
    time.sleep(FLOW_S / 2)
    packet_bytes = backlog_packet_bytes()
    end = json.loads(flow.communicate()[0])["end"]["sum_received"]
    after = delayer_s(), machine_s()
    costs = [(now - was) / end["bytes"] * 1e9 for was, now in zip(before, after, strict=True)]
    return end["bits_per_second"] / 8e6, costs[0], costs[1], packet_bytes


def backlog_packet_bytes() -> float:
    """Return the mean size of the packets in node1's queue; 0 if it is empty."""
    rows = json.loads(inside(NODES[0], "tc", "-s", "-json", "qdisc", "show", "dev", "eth0"))
    waiting = [(row["backlog"], row["qlen"]) for row in rows if row["kind"] == "tbf"]
    return float(sum(size for size, _ in waiting) / max(1, sum(count for _, count in waiting)))


def delayer_s() -> float:
    """Return the CPU time of node2's delayer since its start; 0 if there is none."""
    script = "cat /dev/null $(grep -l '(delayer)' /proc/[0-9]*/stat 2>/dev/null)"
    fields = inside(NODES[1], "sh", "-c", script).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def machine_s() -> float:
    """Return the busy time of this machine's CPUs since boot."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS


def inside(node: str, *argv: str) -> str:
    """Run `docker exec`; return the output."""
    done = subprocess.run(
        ["docker", "exec", node, *argv], capture_output=True, text=True, check=True
    )
    return done.stdout


def first_step(metrics: str) -> float:
    """Return the wall-clock time at which the first step ended."""
    events = (json.loads(line) for line in metrics.splitlines())
    return next(float(event["time"]) for event in events if event["event"] == "step")


def verb(name: str, *args: str) -> Json:
    """Run a verb; return its JSON document."""
    argv = [sys.executable, "-m", f"cluster.{name}", "--json", "--name", NAME, *args]
    done = subprocess.run(argv, cwd=PROJECT_DIR, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    document: Json = json.loads(done.stdout)
    return document


if __name__ == "__main__":
    main()
