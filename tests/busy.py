"""Measures round trips while every core is busy training, to see whether links keep their delay.

    python tests/busy.py                              # wan, mobile and mobile-real, on 3 nodes
    python tests/busy.py --profiles wan --wire nfqueue

Brings up a cluster named t-busy, trains on all of its nodes without any communication, so that no node waits for
another, and has `ping` measure every pair meanwhile. Prints the requested value, the mean, and the standard deviation;
on a link without requested jitter, the latter should be below 1.5 ms, and the mean within 1 % and 0.5 ms.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time

from conformance import Json, verb

from cluster.base.console import print_table
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import project_name

NAME = "t-busy"
PINGS, INTERVAL_S = 200, 0.05
WARM_UP_S = 15.0
FOR_EVER = ["--strategy", "fedavg", "--set", "H=1000000", "--steps", "1000000"]


def main() -> None:
    """Measure all profiles, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--profiles", nargs="+", default=["wan", "mobile", "mobile-real"])
    parser.add_argument("--wire", default="auto")
    args = parser.parse_args()
    rows = []
    verb(NAME, "down")
    try:
        verb(NAME, "up", "--nodes", str(args.nodes))
        for profile in args.profiles:
            shaped = verb(NAME, "shape", "--profile", profile, "--wire", args.wire)
            rows += measure(profile, shaped["links"])
    finally:
        verb(NAME, "down")
    print_table(["PROFILE", "PAIR", "ASKED ms", "MEAN ms", "SD ms", "SD ASKED", ""], rows)


def measure(profile: str, links: list[Json]) -> list[list[str]]:
    """Return a row for each pair of nodes, measured while they train."""
    argv = [sys.executable, "-m", "cluster.launch", "--name", NAME, "--no-verify", *FOR_EVER]
    training = subprocess.Popen(
        argv, cwd=PROJECT_DIR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(WARM_UP_S)
        assert training.poll() is None, "the training has ended"
        return [row_of(profile, link, links) for link in links if link["src"] < link["dst"]]
    finally:
        training.terminate()
        training.wait()


def row_of(profile: str, there: Json, links: list[Json]) -> list[str]:
    """Return a row with the requested and measured values of one pair."""
    ends = (there["dst"], there["src"])
    back = next(link for link in links if (link["src"], link["dst"]) == ends)
    asked_ms = there["delay_ms"] + back["delay_ms"]
    asked_sd = (there["jitter_ms"] ** 2 + back["jitter_ms"] ** 2) ** 0.5
    trips = ping(there["src"], there["dst"])
    mean, spread = statistics.fmean(trips), statistics.stdev(trips)
    fine = abs(mean - asked_ms) <= asked_ms * 0.01 + 0.5 and spread <= 1.5
    verdict = "" if asked_sd else "ok" if fine else "OFF"
    pair = f"{there['src']} - {there['dst']}"
    return [profile, pair, *(f"{ms:.2f}" for ms in (asked_ms, mean, spread, asked_sd)), verdict]


def ping(src: str, dst: str) -> list[float]:
    """Return round trips in ms, without the first, which waits for ARP."""
    argv = ["ping", "-c", str(PINGS), "-i", str(INTERVAL_S), "-W", "3", dst]
    container = f"{project_name(NAME)}-{src}"
    done = subprocess.run(
        ["docker", "exec", container, *argv], capture_output=True, text=True, check=True
    )
    return [float(ms) for ms in re.findall(r"time=([0-9.]+) ms", done.stdout)[1:]]


if __name__ == "__main__":
    main()
