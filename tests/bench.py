"""What our own work costs, as ratios measured in turn: prints a table, asserts nothing.

    python tests/bench.py up --nodes 3            # cluster.up against a bare compose up of the same file
    python tests/bench.py launch                  # to the first training step, against `docker exec` by hand
    python tests/bench.py wire                    # what a link carries that limits nothing, against no wire at all

Uses a cluster named t-bench. Machines are noisy: read the medians, on a quiet one.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster.compose_process import compose_command, up_argv
from cluster.keys import ensure_keys
from cluster.places import place_ranks, rank_environment
from cluster.spec import PROJECT_DIR, ClusterSpec
from node.wire.offload import FEATURES

NAME = "t-bench"
REST_S = 3.0
STEPS = ["--strategy", "fedavg", "--set", "H=20", "--steps", "2"]


def main() -> None:
    """Measure one of the two, print every pair and the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["up", "launch", "wire"])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    if args.what == "wire":
        wire_table(args.repeat)
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
    """Seconds of `cluster.up`, links and all, and of compose alone, with the same file and keys there."""
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
    """Take the cluster down, and let the engine and the kernel finish what they do after that."""
    verb("down")
    time.sleep(REST_S)


def pair_of_launches(nodes: int) -> tuple[float, float]:
    """Seconds from the command to rank 0's first step: by cluster.launch, and by `docker exec` on every node."""
    verb("up", "--nodes", str(nodes), "--profile", "mobile")
    started = time.time()
    summary = verb("launch", "--no-verify", *STEPS)
    metrics = PROJECT_DIR / "runs" / summary["run"] / "metrics" / "node1.jsonl"
    return first_step(metrics.read_text()) - started, by_hand(nodes)


def by_hand(nodes: int) -> float:
    """The same ranks, started with `docker exec`."""
    started = time.time()
    ranks = []
    spec = ClusterSpec(NAME, nodes)
    places = place_ranks([node.name for node in spec.nodes])
    for place in places:
        environ = rank_environment(place, places, (), "hand", "/tmp/hand", 60) | {
            "GLOO_SOCKET_IFNAME": "eth0"
        }
        flags = [word for key, value in environ.items() for word in ("--env", f"{key}={value}")]
        argv = ["docker", "exec", *flags, f"{NAME}-{place.node}", "nice", "-n", "19"]
        ranks.append(
            subprocess.Popen(
                [*argv, "python3", "-m", "node.train", *STEPS], stdout=subprocess.DEVNULL
            )
        )
    assert [rank.wait() for rank in ranks] == [0] * nodes
    read = ["docker", "exec", f"{NAME}-node1", "cat", "/tmp/hand/metrics.jsonl"]
    seconds = (
        first_step(subprocess.run(read, check=True, capture_output=True, text=True).stdout)
        - started
    )
    for node in spec.nodes:
        subprocess.run(
            ["docker", "exec", f"{NAME}-{node.name}", "rm", "-r", "/tmp/hand"], check=True
        )
    return seconds


def wire_table(repeat: int) -> None:
    """Goodput of one TCP connection in MB/s: packets of 1500 bytes, then super-packets as the kernel makes them."""
    try:
        verb("up", "--nodes", "2")
        # Up to 250 MB/s links go without offloads. One that asks for more keeps them, unless they are taken from it.
        for offloads, rate in (("off", 250), ("off", 10_000), ("on", 10_000)):
            pairs = []
            for _ in range(repeat):
                verb("shape", "--clear")
                bare = goodput(offloads)
                with tempfile.NamedTemporaryFile("w", suffix=".yml") as profile:
                    profile.write(f"rate_mbyte_s: {rate}\ndelay_ms: 1\nbuffer_ms: 50\n")
                    profile.flush()
                    wire = verb("shape", "--profile", profile.name)["wire"]
                pairs.append((goodput(offloads), bare))
                print(f"ours {pairs[-1][0]:7.1f} MB/s   bare {bare:7.1f} MB/s", flush=True)
            ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"{wire}, {rate} MB/s asked, offloads {offloads}: {ours:.1f} of {bare:.1f} MB/s, "
                f"ratio {ours / bare:.2f}"
            )
    finally:
        verb("down")


def goodput(offloads: str) -> float:
    """Of node1 -> node2, by iperf3, in MB/s, with all offloads `on` or `off`."""
    nodes = [f"{NAME}-node{n}" for n in (1, 2)]
    switches = [word for name in FEATURES for word in (name, offloads)]
    for node in nodes:
        inside(node, "ethtool", "-K", "eth0", *switches)
    inside(nodes[1], "iperf3", "--server", "--daemon", "--one-off")
    said = inside(nodes[0], "iperf3", "--client", "node2", "--omit", "1", "--time", "4", "--json")
    return json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8e6


def inside(node: str, *argv: str) -> str:
    """`docker exec`."""
    done = subprocess.run(
        ["docker", "exec", node, *argv], capture_output=True, text=True, check=True
    )
    return done.stdout


def first_step(metrics: str) -> float:
    """When the first step had been made, by the clock."""
    events = (json.loads(line) for line in metrics.splitlines())
    return next(float(event["time"]) for event in events if event["event"] == "step")


def verb(name: str, *args: str) -> dict:
    """Run a verb, return its JSON document."""
    argv = [sys.executable, "-m", f"cluster.{name}", "--json", "--name", NAME, *args]
    done = subprocess.run(argv, cwd=PROJECT_DIR, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    document: dict = json.loads(done.stdout)
    return document


if __name__ == "__main__":
    main()
