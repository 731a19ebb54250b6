"""Plants errors in real links behind the tool's back, and counts which of them the contract finds.

    python tests/planted_errors.py                                        # wan, three seeds: some ten minutes
    python tests/planted_errors.py --profile mobile-real --seeds 5 --wire nfqueue
    python tests/netem/measure.py planted                                 # on netem, in user-mode Linux

First the right links are measured. Then the link from node1 to node2 gets one error at a time: a value that is off by
as much as that contract says it finds in 99 of 100 cases (`detectable` in contract.json), or a part that is removed.
`broken` and `undecided` count the contracts that say so of this link, or that are refused because a part is missing;
`held` those that find nothing; `others` those that call a link wrong that the error does not touch; `not planted` the
errors that the nodes refused. Where an uplink is narrower than the link, the rate that is off is the uplink's. Sizes
that no link can have (losses above 100 %) are left out. Uses a cluster of its own, t-planted-errors, and takes it
down.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.api import Cluster
from cluster.base.errors import ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import project_name
from cluster.contract.power import Detectable, detectable_errors
from cluster.contract.verdicts import Contract, Verdict
from cluster.links.link_spec import LinkSpec, make_link_spec
from protocol.link import Link

sys.path.insert(0, str(PROJECT_DIR / "tests" / "shared"))
from wrong_links import lift_uplink, multiply, multiply_uplink, remove_queue  # noqa: E402

NAME = "t-planted-errors"
SRC, DST = "node1", "node2"
UPLINK = "base: full\nnodes:\n  node1: {uplink_mbyte_s: UPLINK}\n"
STOP_DAEMON = ("pkill", "-STOP", "-x", "delayer")
END_DAEMON = ("pkill", "-KILL", "-x", "delayer")
LET_GO = ("pkill", "-CONT", "-x", "delayer")
WORDS = ("undecided", "held", "others", "not planted")

Harm = Callable[[], None]


class Error(NamedTuple):
    """An error: its name, its size in words, and what plants it."""

    name: str
    size: str
    harm: Harm


def main() -> None:
    """Plant and measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="wan")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--effort", choices=["quick", "normal", "full"], default="normal")
    parser.add_argument("--wire", default="auto")
    parser.add_argument("--out", type=Path, help="a folder for table.md, beside what is printed")
    args = parser.parse_args()
    outcomes: dict[str, Counter[str]] = {}
    sizes: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder, Cluster(name=NAME, nodes=3) as cluster:
        for seed in range(1, args.seeds + 1):
            of_uplinks = Path(folder) / f"{seed}.yml"
            planted = contracts(cluster, args.profile, seed, args.wire, args.effort, of_uplinks)
            for error, found in planted:
                outcomes.setdefault(error.name, Counter()).update(found)
                sizes.setdefault(error.name, []).append(error.size)
                print(f"seed {seed}: {error.name} {error.size}: {', '.join(found)}", flush=True)
    lines = "\n".join(table(outcomes, sizes))
    print(lines)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "table.md").write_text(f"{lines}\n")


def contracts(
    cluster: Cluster, profile: str, seed: int, wire: str, effort: str, of_uplinks: Path
) -> Iterator[tuple[Error, list[str]]]:
    """Yield each error of one draw of links, and what the contract found; first that of right links.

    Args:
        cluster: three nodes.
        profile: of their links, by name or file.
        seed: of the draw.
        wire: which lays them.
        effort: of the contracts.
        of_uplinks: a file for the topology with a limited uplink.
    """
    spec = make_link_spec(profile, "full", seed, wire)
    cluster.shape(spec)
    right = cluster.verify(effort)
    yield Error("none", "", lambda: None), outcome(right)
    verdict = next(v for v in right.verdicts if v.link.ends == (SRC, DST))
    for error in [*of_values(verdict), *of_parts(verdict.link.wire)]:
        yield error, with_error(cluster, spec, effort, error)
    of_uplinks.write_text(UPLINK.replace("UPLINK", f"{verdict.link.rate_mbyte_s:.3f}"))
    with_uplink = make_link_spec(profile, str(of_uplinks), seed, wire)
    error = Error("uplink without a limit", "", lambda: lift_uplink(execute, SRC))
    yield error, with_error(cluster, with_uplink, effort, error)


def with_error(cluster: Cluster, spec: LinkSpec, effort: str, error: Error) -> list[str]:
    """Make the links anew, plant the error, and return what the contract finds."""
    cluster.shape(None)
    cluster.shape(spec)
    try:
        error.harm()
        return outcome(cluster.verify(effort))
    except subprocess.CalledProcessError as refused:
        print(f"{error.name} {error.size}: {refused.stderr.strip()}", file=sys.stderr)
        return ["not planted"]
    except ClusterError as refused:
        return [f"broken: {str(refused).splitlines()[0]}"]
    finally:
        with suppress(subprocess.CalledProcessError):  # no daemon is there
            execute(DST, *LET_GO)


def of_values(verdict: Verdict) -> Iterator[Error]:
    """Yield the errors of the link's values."""
    link = verdict.link
    is_uplink = verdict.expected_rate_mbyte_s < link.rate_mbyte_s
    limited = link._replace(rate_mbyte_s=verdict.expected_rate_mbyte_s)
    size = detectable_errors(limited, verdict.measured, clipped=verdict.clipped)
    for name, factors in factors_of(link, size).items():
        for factor in factors:
            if name == "loss_pct" and factor * link.loss_pct > 100:
                continue
            words = f"{name} {'+' if factor > 1 else '-'}"

            harm = partial(multiply, execute, SRC, DST, **{name: factor})
            if name == "rate_mbyte_s" and is_uplink:
                harm = partial(multiply_uplink, execute, SRC, factor)
            yield Error(words, f"x {factor:.4g}", harm)


def factors_of(link: Link, size: Detectable) -> Mapping[str, list[float]]:
    """Return by which factors each field of the link is to be wrong, too large and too small."""
    errors_ms = {
        "buffer_ms": size.buffer_ms,
        "delay_ms": size.delay_ms,
        "jitter_ms": size.jitter_ms,
    }
    off = {
        name: error_ms / getattr(link, name)
        for name, error_ms in errors_ms.items()
        if error_ms is not None and getattr(link, name)
    }
    if size.rate_pct is not None:
        off["rate_mbyte_s"] = size.rate_pct / 100
    factors: dict[str, list[float | None]] = {
        name: [1 + share, *([1 - share] if share < 1 else [])] for name, share in off.items()
    }
    factors["loss_pct"] = [size.loss_factor, size.loss_shortfall_factor]
    factors["loss_burst"] = [size.loss_burst_factor]
    return {name: [one for one in found if one is not None] for name, found in factors.items()}


def of_parts(wire: str) -> Iterator[Error]:
    """Yield the errors in which a part of the shaping is missing, or does not work."""
    yield Error("queue removed", "", lambda: remove_queue(execute, SRC))
    root = ("tc", "qdisc", "del", "dev", "eth0", "root")
    yield Error("egress removed", "", lambda: execute(SRC, *root))
    if wire == "nfqueue":
        yield Error("daemon stopped", "", lambda: execute(DST, *STOP_DAEMON))
        yield Error("daemon ended", "", lambda: execute(DST, *END_DAEMON))


def outcome(contract: Contract) -> list[str]:
    """Return what the contract says of the link, and of those that the error does not touch, in one word each."""
    said = ["held"]
    for verdict in contract.verdicts:
        ends = verdict.link.ends
        if ends == (SRC, DST) and verdict.failed:
            said[0] = "broken" if verdict.broken else "undecided"
        elif SRC not in ends and DST not in ends and verdict.failed:
            said.append("others")
    if any(not access.holds for access in contract.accesses) or contract.changed:
        said[0] = "broken"
    return said


def execute(node: str, *argv: str) -> None:
    """Run a command on a node without the tool; a CalledProcessError if it did not work."""
    container = f"{project_name(NAME)}-{node}"
    argv = ("docker", "exec", container, *argv)
    subprocess.run(argv, check=True, capture_output=True, text=True)


def table(outcomes: Mapping[str, Counter[str]], sizes: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the table: a row for each error."""
    yield "| error | sizes | broken | undecided | held | others | not planted |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for name, found in outcomes.items():
        broken = sum(count for word, count in found.items() if word.startswith("broken"))
        counts = " | ".join(str(found[word]) for word in WORDS)
        yield f"| {name} | {', '.join(filter(None, sizes[name]))} | {broken} | {counts} |"


if __name__ == "__main__":
    main()
