"""Measures which errors the contract finds: real links, measured repeatedly and compared with wrong requests.

    python tests/power.py --profile wan --contracts 10
    python tests/power.py --profile mobile-real --contracts 5 --wire netem

A correct link compared with a request that is off by some error is equivalent to a link that is off by that error
compared with the correct request. So each contract gives a result for every link and every error, without planting any
(tests/links plants some). Each row has an error, the number of links on which it was found, and the number of links
tried; the "smallest" errors are those that contract.json says are found in 99 % of cases. The first row compares links
with their real request: false alarms. Uses a cluster of its own, t-power, and takes it down.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cluster.api import Cluster
from cluster.contract.power import detectable_errors
from cluster.contract.verdicts import Contract, Verdict, judge
from cluster.links.expected import Expected
from cluster.links.link_spec import make_link_spec
from cluster.shaping.link_state import expected_of
from protocol.link import Link

SHARES = (0.02, 0.05, 0.1, 0.15, 0.25, 0.5)
TRIES = 30  # iterations until the factor is the one that belongs to the resulting request
FACTORS = (0.0, 0.5, 1.5, 2.0, 3.0, 5.0)


class Error(NamedTuple):
    """One way in which a link may be wrong, and the request that a correct link would then have had."""

    name: str
    request: Callable[[Link, Verdict], Link | None]


def errors() -> Iterator[Error]:
    """Yield all errors to try."""
    yield Error("none", lambda link, _: link)
    for sign in (1, -1):
        for share in SHARES:
            size = f"{100 * sign * share:+.0f} %"
            for field in ("delay_ms", "jitter_ms", "rate_mbyte_s"):
                yield Error(f"{field} {size}", _off_by(field, 1 + sign * share))
    for factor in FACTORS:
        yield Error(f"loss_pct x {factor:g}", _off_by("loss_pct", factor))
    for figure in ("delay_ms", "jitter_ms", "rate_pct", "loss_factor"):
        yield Error(f"smallest {figure}", _smallest(figure))


def _off_by(field: str, factor: float) -> Callable[[Link, Verdict], Link | None]:
    """Return a function that makes the request of which a real link has `factor` times the value."""

    def request(link: Link, _: Verdict) -> Link | None:
        real = getattr(link, field)
        if not real:
            return None
        return link._replace(**{field: real / factor}) if factor else None

    return request


def _smallest(figure: str) -> Callable[[Link, Verdict], Link | None]:
    """Return a function that makes the request which a real link misses by exactly the detectable error."""

    def request(link: Link, verdict: Verdict) -> Link | None:
        size = _size(link, verdict, figure)
        if size is None:
            return None
        match figure:
            case "delay_ms" | "jitter_ms":
                asked = getattr(link, figure) - size
                return link._replace(**{figure: asked}) if asked > 0 else None
            case "rate_pct":
                return link._replace(rate_mbyte_s=link.rate_mbyte_s / (1 - size / 100))
            case _:
                return link._replace(loss_pct=link.loss_pct / size)

    return request


class Measurement(NamedTuple):
    """The request for all links, and a contract of them."""

    asked: Expected
    contract: Contract


def _size(link: Link, verdict: Verdict, figure: str) -> float | None:
    """Return the detectable error of a figure, for the request that it leads to: a smaller loss has another one."""
    said = detectable_errors(link, verdict.measured, clipped=verdict.clipped)
    size: float | None = getattr(said, figure)
    for _ in range(TRIES if figure == "loss_factor" else 0):
        if not size:
            break
        asked = link._replace(loss_pct=link.loss_pct / size)
        size = detectable_errors(asked, verdict.measured).loss_factor or size
    return size


def found(measurement: Measurement, error: Error) -> list[bool]:
    """Return, for each link that can have this error, whether the contract finds it."""
    asked, said = measurement.asked, []
    for verdict in measurement.contract.verdicts:
        wrong = error.request(verdict.link, verdict)
        if wrong is not None:
            links = [wrong if link == verdict.link else link for link in asked.links]
            said.append(bool(judge(wrong, replace(asked, links=links), verdict.measured).failed))
    return said


def table(measurements: Sequence[Measurement]) -> Iterable[str]:
    """Yield the table: a row for each error."""
    yield "| error | found | of |"
    yield "|---|--:|--:|"
    for error in errors():
        said = [one for measurement in measurements for one in found(measurement, error)]
        if said:
            yield f"| {error.name} | {sum(said)} | {len(said)} |"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="wan")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--contracts", type=int, default=10)
    parser.add_argument("--effort", choices=["quick", "normal", "full"], default="normal")
    parser.add_argument("--wire", default="auto")
    parser.add_argument("--out", type=Path, help="a folder for table.md, beside what is printed")
    args = parser.parse_args()
    measurements = []
    with Cluster(name="t-power", nodes=args.nodes) as cluster:
        for seed in range(1, args.contracts + 1):
            cluster.shape(make_link_spec(args.profile, "full", seed, args.wire))
            contract = cluster.verify(args.effort)
            measurements.append(Measurement(expected_of(cluster.links()), contract))
            print(f"seed {seed}: {contract.verdict()}", flush=True)
    lines = "\n".join(table(measurements))
    print(lines)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "table.md").write_text(f"{lines}\n")


if __name__ == "__main__":
    main()
