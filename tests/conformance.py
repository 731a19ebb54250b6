"""Every profile on every topology: asked, expected and measured, as a table that can be kept.

    python tests/conformance.py                                  # all profiles x full, ring, star on 4 nodes
    python tests/conformance.py --profiles wan mobile --topologies ring --wire nfqueue
    python tests/conformance.py --profiles mobile-real --full    # more pings: links that jitter need them

Brings a cluster named t-conformance up, shapes it as each, measures every link and every path (`cluster.verify`),
prints a line for each, and writes them all to --out as Markdown: of each value the link that is farthest off.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.errors import EXIT_DONE, EXIT_FAILED
from cluster.profiles import profile_names
from cluster.spec import PROJECT_DIR

NAME = "t-conformance"
TOPOLOGIES = ["full", "ring", "star"]
HEADER = [
    "PROFILE",
    "TOPOLOGY",
    "HOLDS",
    "RTT off",
    "JITTER off",
    "LOSS off",
    "SPEED off",
    "AGAIN",
    "s",
]
OUT = PROJECT_DIR / "runs" / "conformance.md"

Json = dict[str, Any]


def main() -> int:
    """Measure all; returns 0 where all hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--profiles", nargs="+", default=profile_names(), metavar="PROFILE")
    parser.add_argument("--topologies", nargs="+", default=TOPOLOGIES, metavar="TOPOLOGY")
    parser.add_argument("--wire", default="auto")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--full", action="store_true", help="as cluster.verify has it")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rows, contracts, wire = [HEADER], [], ""
    verb("down")
    try:
        verb("up", "--nodes", str(args.nodes))
        for profile in args.profiles:
            for topology in args.topologies:
                words = ("--profile", profile, "--topology", topology, "--seed", args.seed)
                wire = verb("shape", *words, "--wire", args.wire)["wire"]
                contracts.append(verb("verify", *(["--full"] if args.full else [])))
                rows.append([profile, topology, *figures(contracts[-1])])
                print("  ".join(f"{cell:>10}" for cell in rows[-1]), flush=True)
    finally:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        where = f"{args.nodes} nodes, {wire}, kernel {platform.release()}"
        args.out.write_text(markdown(rows, where))
        verb("down")
    print(f"written to {args.out}")
    return EXIT_DONE if all(contract["holds"] for contract in contracts) else EXIT_FAILED


def verb(what: str, *words: str, name: str = NAME) -> Json:
    """One verb with --json: its document; a broken contract has one, too."""
    argv = [sys.executable, "-m", f"cluster.{what}", "--name", name, "--json", *words]
    done = subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"cluster.{what}: exit {done.returncode}\n{done.stderr}")
    document = json.loads(done.stdout)
    return document if isinstance(document, dict) else {}


def figures(contract: Json) -> list[str]:
    """One contract as the cells of a row: of each value the link that is farthest off."""
    rows = contract["links"] + contract["paths"]
    clipped = sum(row["clipped"] for row in rows)
    holds = ("yes" if contract["holds"] else "NO") + (f", {clipped} clipped" if clipped else "")
    return [
        holds,
        _farthest(rows, "rtt_ms", "%"),
        _farthest([row for row in rows if row["expected"]["jitter_ms"]], "jitter_ms", "%"),
        _farthest([row for row in rows if row["expected"]["loss_pct"]], "loss_pct", "points"),
        _farthest([row for row in rows if not row["clipped"]], _speed, "%"),
        str(contract["measured_again"]),
        f"{contract['seconds']:.0f}",
    ]


def _speed(row: Json) -> str:
    """What is judged of a link's speed: goodput, or where TCP did not tell, the rate."""
    return "goodput_mbyte_s" if row["measured"]["rate_mbyte_s"] is None else "rate_mbyte_s"


def _farthest(rows: list[Json], field: Any, unit: str) -> str:  # noqa: ANN401 - a name, or a function to find it
    off = []
    for row in rows:
        name = field(row) if callable(field) else field
        expected, measured = row["expected"][name], row["measured"][name]
        if measured is not None:
            off.append(measured - expected if unit == "points" else 100 * (measured / expected - 1))
    return f"{max(off, key=abs):+.2f} {unit}" if off else "-"


def markdown(rows: list[list[str]], where: str) -> str:
    """The rows as a table."""
    lines = [" | ".join(row) for row in rows]
    lines.insert(1, " | ".join("---" for _ in rows[0]))
    table = "\n".join(f"| {line} |" for line in lines)
    return f"`python tests/conformance.py`: {where}.\n\n{table}\n"


if __name__ == "__main__":
    sys.exit(main())
