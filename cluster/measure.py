"""Measures every link, by `cluster.probing` in rounds; `cluster.contract` judges."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cluster.console import Console
from cluster.contract import Contract, UplinkVerdict, Verdict, judge, judge_uplink
from cluster.errors import ClusterError
from cluster.expected import Asked
from cluster.fleet import Fleet
from cluster.links import Link, paths
from cluster.prober import Prober
from cluster.probes import (
    EFFORTS,
    Effort,
    delay_pings,
    flooded,
    plan_rounds,
    planned_s,
    streamed,
)
from cluster.probing import Pinged, fill_links, flood_links, ping_links
from cluster.shaping import Shape, asked_of

# Deviations between pings over several links, where nobody could tell who has waited.
PATH_APART = 5.0
LOOKS = 3  # at a link that is not what was asked
DRAIN_S = 0.5  # and twice the queue: what goodput probes left there must not delay the next pings


def measure_contract(
    fleet: Fleet, shape: Shape, console: Console, effort: str = "normal"
) -> Contract:
    """Measure all links in force; `effort` is one of `cluster.probes.EFFORTS`.

    Raises:
        ClusterError: no link is shaped, so nothing was asked, or a node has lost its links.
        NodeError: a node does not answer, or its probe failed.
    """
    if not shape.links:
        raise ClusterError(
            "no link is shaped: there is nothing to verify",
            "python -m cluster.shape --profile mobile",
        )
    _check_whole(shape)
    started = time.monotonic()
    via = {path.end_to_end(): path.via for path in paths(shape.links)}
    seconds = planned_s(shape.links, [node.name for node in fleet.nodes], EFFORTS[effort])
    console.say(f"contract: {len(shape.links)} links, about {seconds:.0f} s")
    with Prober(fleet) as prober, console.progress("contract") as report:
        survey = _Survey(prober, asked_of(shape), EFFORTS[effort], report)
        of_links, links_again = survey.until_sure(survey.links, shape.links)
        of_paths, paths_again = survey.until_sure(survey.paths, list(via))
        uplinks = [survey.uplink(node) for node in shape.uplinks if EFFORTS[effort].speeds]
    return Contract(
        (*of_links, *(replace(v, via=via[v.link]) for v in of_paths)),
        tuple(uplinks),
        time.monotonic() - started,
        links_again + paths_again,
        shape.notes if EFFORTS[effort].speeds else (*shape.notes, "speeds were not measured"),
    )


def _check_whole(shape: Shape) -> None:
    """Raise where a neighbour has no plan: its links would be missing from the contract, and nobody would see it."""
    neighbours = {peer for plan in shape.plans.values() for peer in plan["peers"]}
    bare = sorted(neighbours - set(shape.plans))
    if bare:
        message = f"the links of {', '.join(bare)} are no longer in force"
        raise ClusterError(
            "\n".join([message, *(f"  {note}" for note in shape.notes)]),
            "python -m cluster.shape --profile NAME lays them anew",
        )


@dataclass(frozen=True)
class _Survey:
    """One measurement of all that was asked."""

    prober: Prober
    asked: Asked
    effort: Effort
    report: Callable[[str], None]

    def until_sure(
        self, measure: Callable[[Sequence[Link]], list[Verdict]], links: Sequence[Link]
    ) -> tuple[list[Verdict], int]:
        """Measure, and again what is not as asked: the last verdicts, and how many links were measured again.

        A busy moment of the host passes; a link that is wrong stays wrong.
        """
        verdicts, again = measure(links), 0
        for _ in range(LOOKS - 1):
            doubtful = [v.link for v in verdicts if v.broken]
            if not doubtful:
                break
            again += len(doubtful)
            self.report(f"{len(doubtful)} links measured again")
            time.sleep(DRAIN_S + 2 * max(link.buffer_ms for link in links) / 1000)
            news = {v.link: v for v in measure(doubtful)}
            verdicts = [news.get(v.link, v) for v in verdicts]
        return verdicts, again

    def links(self, links: Sequence[Link]) -> list[Verdict]:
        """Everything about these links."""
        self.report("round trips, jitter and loss")
        measured = ping_links(
            self.prober, links, self.asked.links, partial(delay_pings, effort=self.effort)
        )
        alive = [link for link in links if not self.asked.is_cut(link)]
        streams = streamed(alive, self.effort)
        for number, some in enumerate(rounds := plan_rounds(streams, self.prober.nodes), start=1):
            self.report(f"goodput, round {number} of {len(rounds)}")
            _add(measured, fill_links(self.prober, some, self.asked.links))
        floods = flooded(alive, self.effort)
        for number, some in enumerate(rounds := plan_rounds(floods, self.prober.nodes), start=1):
            self.report(f"rates, round {number} of {len(rounds)}")
            rates = flood_links(self.prober, {link.src: [link] for link in some})
            _add(measured, {pair: {"rate_mbyte_s": rate} for pair, rate in rates.items()})
        return [judge(link, self.asked, measured[link.src, link.dst]) for link in links]

    def paths(self, paths: Sequence[Link]) -> list[Verdict]:
        """The pairs of nodes without a link, against what the links between them make together; no goodput.

        On links with jitter one node pings at a time: where pings of many nodes meet on a link, one that follows
        another closely waits for it.
        """
        groups: dict[str, list[Link]] = {}
        jitter = any(path.jitter_ms for path in paths)
        for path in paths:
            groups.setdefault(min(path.src, path.dst) if jitter else "", []).append(path)
        verdicts = []
        for number, group in enumerate(groups.values(), start=1):
            self.report(f"paths over several links, {number} of {len(groups)}")
            order = partial(delay_pings, effort=self.effort, apart=PATH_APART)
            pinged = ping_links(self.prober, group, group, order)
            asked = replace(self.asked, links=group)
            verdicts += [judge(path, asked, pinged[path.src, path.dst]) for path in group]
        return verdicts

    def uplink(self, node: str) -> UplinkVerdict:
        """What a node sends on all its links at once; again where that is not what it may."""
        self.report(f"uplink of {node}")
        links = [
            link for link in self.asked.links if link.src == node and not self.asked.is_cut(link)
        ]
        if not links:
            return judge_uplink(node, 0.0, 0.0)
        most = min(self.asked.uplinks[node], sum(link.rate_mbyte_s for link in links))
        for _ in range(LOOKS):
            rates = flood_links(self.prober, {node: links})
            verdict = judge_uplink(node, most, sum(rates.values()))
            if verdict.holds:
                break
        return verdict


def _add(measured: Pinged, news: Mapping[tuple[str, str], Mapping[str, float | None]]) -> None:
    for pair, values in news.items():
        measured[pair] = replace(measured[pair], **values)  # type: ignore[arg-type]
