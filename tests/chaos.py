"""Injects seeded faults while verbs run, and checks the obligations after each. Prints a table of kinds and outcomes.

    python tests/chaos.py                                # two hundred: more than half an hour
    python tests/chaos.py --faults 20 --seed 7           # the first twenty of another plan
    python tests/chaos.py --kinds "node paused" "links cut"
    python tests/chaos.py --only 17                      # that one, or some, again
    python tests/chaos.py --part 1/3 --name chaos1       # a third; others play the rest, to the same --out
    python tests/chaos.py --for 300                      # begin none after five minutes; again: go on where it stopped
    python tests/chaos.py --for 0                        # only the table of what was played

The obligations: the command ended within its time limit and named its cause, finished results are intact, the next `up`
and `launch` work, `down` leaves nothing (tests/shared/chaos_play.py). Each fault is a line of JSON in --out; faults of
the same plan that are there already are not played again. Uses two nodes of a cluster of its own; the exit code is 1 if
an obligation was violated. dockerd is restarted only where no one else uses it: GRADWIRE_CHAOS_DOCKERD="service docker
restart", or `python tests/netem/measure.py chaos`, which plays that kind in user-mode Linux.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).with_name("shared")), str(Path(__file__).parents[1])]

from chaos_plan import KINDS, Fault, plan_faults, table
from chaos_play import Stage

OUT = Path(__file__).parents[1] / "runs" / "chaos.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Play the faults that have not been played; return 1 if an obligation was violated."""
    args = parse(argv)
    plan = plan_faults(args.faults, args.seed, args.kinds)
    done = read(args.out, plan, args.seed)
    due = [f for f in plan if f.number in args.only] or [f for f in plan if f.number not in done]
    part, parts = args.part
    if args.seconds > 0:
        play([fault for fault in due if fault.number % parts == part - 1], args)
    done = read(args.out, plan, args.seed)
    print(table((line["fault"]["kind"], line["outcome"]) for line in done.values()))
    played = [line for line in done.values() if line["outcome"] != "skipped"]
    seconds = sum(line["seconds"] for line in played)
    print(f"{len(played)} of {len(plan)} played, in {seconds:.0f} s")
    return int(any(line["violations"] for line in done.values()))


def play(faults: Sequence[Fault], args: argparse.Namespace) -> None:
    """Play faults one after another until the time is over; write a line of --out for each."""
    until = time.monotonic() + args.seconds
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(args.name, Path(folder), args.stretch)
        try:
            for fault in faults:
                if time.monotonic() > until:
                    break
                line = stage.play(fault).document() | {"seed": args.seed}
                with args.out.open("a") as out:
                    out.write(json.dumps(line) + "\n")
                tell(fault, line)
        finally:
            stage.close()


def tell(fault: Fault, line: dict[str, Any]) -> None:
    """Print one line for a fault, and its violations."""
    what = f"{fault.kind}, {fault.phase} ({fault.moment:.2f}), {fault.node}"
    print(f"{fault.number:3} {what}: {line['outcome']} in {line['seconds']} s. {line['why']}")
    for violation in line["violations"]:
        print(f"    VIOLATED: {violation}")
    sys.stdout.flush()


def read(out: Path, plan: Sequence[Fault], seed: int) -> dict[int, dict[str, Any]]:
    """Return the played faults of this plan; if one was played several times, its last line."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    of_plan = {fault.number: (fault.kind, fault.phase) for fault in plan}
    return {
        line["fault"]["number"]: line
        for line in lines
        if line["seed"] == seed
        and of_plan.get(line["fault"]["number"]) == (line["fault"]["kind"], line["fault"]["phase"])
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--name", default="t-chaos", help="of the cluster")
    parser.add_argument("--out", type=Path, default=OUT, help="default: runs/chaos.jsonl")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N")
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--stretch", type=float, default=1.0, help="of phases, on a slower machine")
    parser.add_argument("--only", type=int, nargs="+", default=[], metavar="NUMBER")
    return parser.parse_args(argv)


def _part(text: str) -> tuple[int, int]:
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


if __name__ == "__main__":
    sys.exit(main())
