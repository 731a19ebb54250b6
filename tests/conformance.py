"""Measures profiles on topologies and grids of links, and keeps a table of requested, expected and measured values.

    python tests/conformance.py                                  # all profiles x full, ring, star on 4 nodes, all grids
    python tests/conformance.py --profiles wan mobile --topologies ring --wire nfqueue     # these only
    python tests/conformance.py --grids jitter                   # a grid only: tests/grids/jitter.yml
    python tests/conformance.py --profiles mobile-real --full    # more pings: links that jitter need them

Brings a cluster up, shapes it in each way, measures every link and path (`cluster.verify`), and prints a line for each
case: per value, the link that deviates most. A grid has links with many values of one kind, and is always measured with
--full. Into --out go that table (table.md), every link of all cases (links.csv), and the contracts.
"""

import argparse
import csv
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.base.errors import EXIT_DONE, EXIT_FAILED
from cluster.base.paths import PROJECT_DIR
from cluster.contract.checks import TIME_TOLERANCE_MS as JITTER_TOLERANCE_MS
from cluster.links.profiles import profile_names

TOPOLOGIES = ["full", "ring", "star"]
GRIDS_DIR = PROJECT_DIR / "tests" / "grids"
GRIDS = {  # with the profile of each
    **dict.fromkeys(("delays", "rates", "fast", "jitter", "losses", "bursts", "flaws"), "even"),
    "uniform-jitter": "uniform",
}
HEADER = ["PROFILE", "TOPOLOGY", "HOLDS", "RTT off", "JITTER off", "LOSS off", "SPEED off"]
HEADER += ["AGAIN", "s"]
ASKED = ["delay_ms", "jitter_ms", "distribution", "loss_pct", "loss_burst", "duplicate_pct"]
ASKED += ["corrupt_pct", "reorder_pct", "rate_mbyte_s"]
FOUND = ["rtt_ms", "jitter_ms", "loss_pct", "goodput_mbyte_s", "rate_mbyte_s"]
OUT = PROJECT_DIR / "runs" / "conformance"

Json = dict[str, Any]


class Case(NamedTuple):
    """One measurement: names for the table, and flags of `cluster.shape` and `cluster.verify`."""

    profile: str
    topology: str
    shape: tuple[str, ...]
    verify: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all cases; return 0 if all contracts hold."""
    args = parse(argv)
    cases = [*profile_cases(args.profiles, args.topologies, args.full), *grid_cases(args.grids)]
    contracts: list[tuple[Case, Json]] = []
    verb(args.name, "down")
    try:
        verb(args.name, "up", "--nodes", str(args.nodes))
        for case in cases:
            words = (*case.shape, "--seed", args.seed, "--wire", args.wire)
            wire = verb(args.name, "shape", *words)["wire"]
            contracts.append((case, verb(args.name, "verify", *case.verify)))
            save(args.out, contracts, f"{args.nodes} nodes, {wire}, kernel {platform.release()}")
            print("  ".join(f"{cell:>10}" for cell in row_of(*contracts[-1])), flush=True)
    finally:
        verb(args.name, "down")
    print(f"written to {args.out}")
    return EXIT_DONE if all(contract["holds"] for _, contract in contracts) else EXIT_FAILED


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the flags. With only profiles named there are no grids, and vice versa; with neither, all of both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--name", default="t-conformance", help="of the cluster that is brought up")
    add("--nodes", type=int, default=4, help="at least four; grids have just so many")
    add("--profiles", nargs="+", metavar="PROFILE")
    add("--topologies", nargs="+", default=TOPOLOGIES, metavar="TOPOLOGY")
    add("--grids", nargs="+", choices=GRIDS, metavar="GRID", help=", ".join(GRIDS))
    add("--wire", default="auto")
    add("--seed", default="1")
    add("--full", action="store_true", help="profiles, too, as cluster.verify has it")
    add("--out", type=Path, default=OUT, help="a folder (default %(default)s)")
    args = parser.parse_args(argv)
    if not (args.profiles or args.grids):
        args.profiles, args.grids = profile_names(), list(GRIDS)
    args.profiles, args.grids = args.profiles or [], args.grids or []
    return args


def profile_cases(profiles: Sequence[str], topologies: Sequence[str], full: bool) -> list[Case]:
    """Return a case for each profile on each topology."""
    return [
        Case(
            profile,
            topology,
            ("--profile", profile, "--topology", topology),
            ("--full",) if full else (),
        )
        for profile in profiles
        for topology in topologies
    ]


def grid_cases(names: Sequence[str]) -> list[Case]:
    """Return a case for each of these grids, which have links with many values of one kind."""
    cases = []
    for name in names:
        profile, topology = GRIDS[name], name.removeprefix("uniform-")
        files = [str(GRIDS_DIR / f"{stem}.yml") for stem in (profile, topology)]
        shape = ("--profile", files[0], "--topology", files[1])
        cases.append(Case(profile, topology, shape, ("--full",)))
    return cases


def verb(name: str, what: str, *words: str) -> Json:
    """Run one verb with --json; return its document, which a broken contract has, too."""
    argv = [sys.executable, "-m", f"cluster.{what}", "--name", name, "--json", *words]
    done = subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"cluster.{what}: exit {done.returncode}\n{done.stderr}")
    document = json.loads(done.stdout)
    return document if isinstance(document, dict) else {}


def row_of(case: Case, contract: Json) -> list[str]:
    """Return one contract as a row: for each value, that of the link that deviates most."""
    rows = contract["links"] + contract["paths"]
    clipped = sum(row["clipped"] for row in rows)
    verdict = "yes" if contract["holds"] else "NO" if contract["broken"] else "undecided"
    return [
        case.profile,
        case.topology,
        verdict + (f", {clipped} clipped" if clipped else ""),
        _farthest(rows, "rtt_ms", "%"),
        _farthest([row for row in rows if _jitters(row)], "jitter_ms", "%"),
        _farthest([row for row in rows if row["expected"]["loss_pct"]], "loss_pct", "points"),
        _farthest([row for row in rows if not row["clipped"]], _speed, "%"),
        str(contract["measured_again"]),
        f"{contract['seconds']:.0f}",
    ]


def _jitters(row: Json) -> bool:
    """Return whether the jitter is large enough to be judged: below it, the contract tolerates more."""
    return float(row["expected"]["jitter_ms"]) >= JITTER_TOLERANCE_MS


def _speed(row: Json) -> str:
    """Return the name of the figure by which a link's speed is judged: what datagrams or TCP carried, the larger.

    As in `cluster.contract.checks.check_rate`: if datagrams were fewer, their sender was too slow.
    """
    return max("rate_mbyte_s", "goodput_mbyte_s", key=lambda name: row["measured"][name] or 0.0)


def _farthest(rows: list[Json], field: Any, unit: str) -> str:  # noqa: ANN401 - a name, or a function to find it
    off = []
    for row in rows:
        name = field(row) if callable(field) else field
        expected, measured = row["expected"][name], row["measured"][name]
        if measured is not None:
            off.append(measured - expected if unit == "points" else 100 * (measured / expected - 1))
    return f"{max(off, key=abs):+.2f} {unit}" if off else "-"


def save(out: Path, contracts: Sequence[tuple[Case, Json]], where: str) -> None:
    """Save all that was measured so far: the table, every link, the contracts themselves."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(markdown([HEADER, *(row_of(*one) for one in contracts)], where))
    with (out / "links.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(links_header())
        writer.writerows(row for one in contracts for row in link_rows(*one))
    for case, contract in contracts:
        text = json.dumps(contract, indent=2) + "\n"
        (out / f"{case.profile}-{case.topology}.json").write_text(text)


def links_header() -> list[str]:
    """Return the columns of links.csv."""
    found = [f"{kind}_{name}" for name in FOUND for kind in ("expected", "measured")]
    return [
        "profile",
        "topology",
        "src",
        "dst",
        "via",
        *ASKED,
        *found,
        "clipped",
        "broken",
        "undecided",
    ]


def link_rows(case: Case, contract: Json) -> list[list[object]]:
    """Return every link and path of a contract, as rows of links.csv."""
    return [
        [
            *(case.profile, case.topology, row["link"]["src"], row["link"]["dst"]),
            " ".join(row.get("via", [])),
            *(row["link"][name] for name in ASKED),
            *(row[kind][name] for name in FOUND for kind in ("expected", "measured")),
            *(row["clipped"], " ".join(row["broken"]), " ".join(row["undecided"])),
        ]
        for row in contract["links"] + contract["paths"]
    ]


def markdown(rows: list[list[str]], where: str) -> str:
    """Return the rows as a Markdown table."""
    lines = [" | ".join(row) for row in rows]
    lines.insert(1, " | ".join("---" for _ in rows[0]))
    table = "\n".join(f"| {line} |" for line in lines)
    return f"`python tests/conformance.py`: {where}.\n\n{table}\n"


if __name__ == "__main__":
    sys.exit(main())
