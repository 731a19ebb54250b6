"""Measures the share of time that DiLoCo computes, by the steps between two exchanges and the rate of the links.

    python examples/compute_utilisation.py                          # H = 1 and 8; 50, 200 and 1000 Mbit/s
    python examples/compute_utilisation.py --nodes 2 --H 8 --mbit 50 --rounds 3

Each cell trains, and prints the measured share of computing next to the share by the usual formula, with t the
computing seconds of a step and B the rate of a link:

    H t / (H t + bytes of a round / B)

The formula ignores delay, slower ranks and the protocol, so measured over analytic should be less than 1. The first
round is left out as warm-up.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import Cluster, training
from cluster.accounting.metrics_table import metric_rows
from cluster.base.console import Console, print_table
from cluster.base.errors import EXIT_DONE, EXIT_INTERRUPTED, ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.cli.command_line import hear_signals
from cluster.links.link_spec import LinkSpec
from cluster.links.profiles import Profile
from cluster.links.topology_file import load_topology

MBIT_BYTES = 125_000
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Train in every cell, print and write the table."""
    args = parse(sys.argv[1:] if argv is None else argv)
    console = Console(program_output=sys.stderr)  # standard output is for the table
    rows = []
    hear_signals()
    try:
        with Cluster(args.name, nodes=args.nodes, console=console) as cluster:
            for mbit in args.mbit:
                cluster.shape(links(mbit, args.delay_ms))
                for steps in args.H:
                    console.say(f"=== {mbit:g} Mbit/s, H={steps}")
                    rows.append(run(cluster, mbit, steps, args))
                    args.out.parent.mkdir(parents=True, exist_ok=True)
                    args.out.write_text(json.dumps(rows, indent=2) + "\n")
    except ClusterError as error:
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    header = ["MBIT/S", "H", "STEP s", "ROUND MB", "MEASURED", "ANALYTIC", "MEASURED/ANALYTIC"]
    print_table(header, [list(row.values())[: len(header)] for row in rows])
    return EXIT_DONE


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--mbit", nargs="+", type=float, default=[50, 200, 1000], help="rates of the links")
    add("--H", nargs="+", type=int, default=[1, 8], help="local steps between two exchanges")
    add("--rounds", type=int, default=6, help="exchanges, the first included (default %(default)s)")
    add("--delay-ms", type=float, default=1.0, help="one way (default %(default)s)")
    add("--nodes", type=int, default=4)
    add("--name", default="utilisation", help="the cluster (default %(default)s)")
    add("--out", type=Path, default=PROJECT_DIR / "runs" / "utilisation.json")
    add("--no-verify", action="store_true", help="do not measure the links before each run")
    args = parser.parse_args(argv)
    if args.rounds < 2:
        parser.error("--rounds: at least 2, for the first is left out")
    return args


def links(mbit: float, delay_ms: float) -> LinkSpec:
    """Return a link spec with the same link between every two nodes."""
    rate = mbit * MBIT_BYTES / 1e6
    profile = Profile(f"{mbit:g}mbit", (rate, rate), (delay_ms, delay_ms))
    return LinkSpec(profile, load_topology("full"))


def run(cluster: Cluster, mbit: float, steps: int, args: argparse.Namespace) -> Row:
    """Run one cell."""
    words = ["--strategy", "diloco", "--set", f"H={steps}", "--steps", str(steps * args.rounds)]
    done = cluster.launch(training(words), verify=not args.no_verify)
    return cell(metric_rows(done.folder), mbit, steps) | {"run": done.folder.name}


def cell(rows: Sequence[Row], mbit: float, steps: int) -> Row:
    """Return the figures of one run; `rows` come from `cluster.accounting.metrics_table.metric_rows`, `steps` is H."""
    timed = [row for row in rows if row["step"] > steps]
    step_s = sum(row["compute_s"] for row in timed) / len(timed)
    # A strategy's packing is not computing; older runs, without `strategy_s`, count it as computing.
    waited_s = sum(row["comm_s"] + row.get("strategy_s", 0.0) for row in timed) / len(timed)
    round_bytes = steps * sum(row["sent_bytes"] for row in timed) / len(timed)
    measured = step_s / (step_s + waited_s)
    analytic = steps * step_s / (steps * step_s + round_bytes / (mbit * MBIT_BYTES))
    return {
        "mbit_s": mbit,
        "H": steps,
        "step_s": round(step_s, 4),
        "round_mbyte": round(round_bytes / 1e6, 2),
        "measured": round(measured, 4),
        "analytic": round(analytic, 4),
        "measured_over_analytic": round(measured / analytic, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
