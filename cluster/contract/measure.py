"""Measures every link, by `cluster.contract.probing` in rounds; `cluster.contract.verdicts` judges."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.console import Console
from cluster.contract.expected import Asked
from cluster.contract.floods import Flood, floods_s, link_floods, shared_floods
from cluster.contract.measured import Measured
from cluster.contract.prober import Prober
from cluster.contract.probes import PATH_APART, Effort
from cluster.contract.probing import Pinged, fill_links, flood_links, ping_links
from cluster.contract.rounds import path_groups
from cluster.contract.timetable import Timetable, budget_s, make_timetable, stream_rounds
from cluster.contract.verdicts import AccessVerdict, Contract, Verdict, judge, judge_access
from cluster.errors import ClusterError
from cluster.fleet import Fleet
from cluster.links import Link, paths
from cluster.overload import host_summary, overload_sentence
from cluster.shaping import Shape, asked_of, read_shape

LOOKS = 3  # at a link that is not what was asked
DRAIN_S = 0.5  # and twice the queue: what goodput probes left there must not delay the next pings


def measure_contract(
    fleet: Fleet, shape: Shape, console: Console, effort: Effort, most_s: float | None = None
) -> Contract:
    """Measure all links in force.

    Args:
        fleet: the nodes.
        shape: their links, as just read.
        console: where the plan and the progress go.
        effort: how thoroughly.
        most_s: how long it may take with TCP on every link, if not what `cluster.contract.timetable.budget_s` says.

    Raises:
        ClusterError: no link is shaped, so nothing was asked, or a node has lost its links.
        NodeError: a node does not answer, or its probe failed.
    """
    _check_whole(shape)
    started = time.monotonic()
    asked, nodes = asked_of(shape), [node.name for node in fleet.nodes]
    via = {path.end_to_end(): path.via for path in shape.paths}
    most_s = budget_s(len(nodes), effort) if most_s is None else most_s
    timetable = make_timetable(asked, list(via), nodes, effort, shape.seed, most_s)
    console.say(f"contract: {len(shape.links)} links, about {timetable.seconds:.0f} s")
    with Prober(fleet) as prober, console.progress("contract") as report:
        survey = _Survey(prober, asked, tuple(via), effort, timetable, report)
        of_links, links_again = survey.until_sure(survey.links, shape.links)
        of_paths, paths_again = survey.until_sure(survey.paths, list(via))
        accesses = survey.accesses() if effort.speeds else []
    contract = Contract(
        (*of_links, *(replace(v, via=via[v.link]) for v in of_paths)),
        tuple(accesses),
        time.monotonic() - started,
        timetable.seconds,
        links_again + paths_again,
        (*shape.notes, *_notes(shape, timetable)),
    )
    sure = contract.holds and not contract.measured_again
    return contract if sure else _note_overload(contract, fleet, shape)


def _note_overload(contract: Contract, fleet: Fleet, before: Shape) -> Contract:
    """Add what the host had to do with it, if anything."""
    late_ms = max(verdict.measured.late_ms for verdict in contract.verdicts)
    host = host_summary(before.readings, read_shape(fleet).readings, late_ms)
    overload = overload_sentence(host)
    if not overload:
        return contract
    return replace(contract, notes=(*contract.notes, overload), overloaded=True)


def _notes(shape: Shape, timetable: Timetable) -> list[str]:
    """What was not measured."""
    apart = len(paths(shape.links)) if shape.isolated else 0
    isolated = f"{apart} pairs of nodes without a link are isolated: not measured" if apart else ""
    return [note for note in (timetable.note, isolated) if note]


def _check_whole(shape: Shape) -> None:
    """Raise where there is no link, or a neighbour has no plan: its links would be missing, and nobody would see it."""
    if not shape.links:
        raise ClusterError(
            "no link is shaped: there is nothing to verify",
            "python -m cluster.shape --profile mobile",
        )
    neighbours = {peer for plan in shape.plans.values() for peer in plan["peers"]}
    bare = sorted(neighbours - set(shape.plans))
    if bare:
        message = f"the links of {', '.join(bare)} are no longer in force"
        raise ClusterError(
            "\n".join([message, *(f"  {note}" for note in shape.notes)]),
            "python -m cluster.shape --profile NAME lays them anew",
        )


@dataclass(frozen=True)
class _Look:
    """What is to be measured, at one go.

    Attributes:
        links: these.
        speeds: links whose speed is known already, with it.
        share: of what usually goes side by side.
    """

    links: Sequence[Link]
    speeds: Mapping[Link, Measured] = field(default_factory=dict)
    share: float = 1.0


@dataclass(frozen=True)
class _Survey:
    """One measurement of all that was asked; `ways` are the paths over several links, as links from end to end."""

    prober: Prober
    asked: Asked
    ways: Sequence[Link]
    effort: Effort
    timetable: Timetable
    report: Callable[[str], None]

    def until_sure(
        self, measure: Callable[[_Look], list[Verdict]], links: Sequence[Link]
    ) -> tuple[list[Verdict], int]:
        """Measure, and again what is not as asked: the last verdicts, and how many links were measured again.

        A busy moment of the host passes; a link that is wrong stays wrong. Each time less goes side by side, and
        for longer: it may have been too much for the machine.
        """
        verdicts, again = measure(_Look(links)), 0
        for look in range(1, LOOKS):
            doubtful = [v for v in verdicts if v.broken]
            if not doubtful:
                break
            again += len(doubtful)
            what = Counter(name for v in doubtful for name in v.broken)
            why = ", ".join(f"{name} of {count}" for name, count in what.most_common())
            self.report(f"{len(doubtful)} links measured again: {why}")
            time.sleep(DRAIN_S + 2 * max(link.buffer_ms for link in links) / 1000)
            known = {v.link: v.measured for v in doubtful if v.speed_holds}
            news = {v.link: v for v in measure(_Look([v.link for v in doubtful], known, 0.5**look))}
            verdicts = [news.get(v.link, v) for v in verdicts]
        return verdicts, again

    def links(self, look: _Look) -> list[Verdict]:
        """Everything about these links."""
        self.report("round trips, jitter and loss")
        measured = ping_links(self.prober, look.links, self.asked.links, self.effort)
        for link, before in look.speeds.items():
            pair = link.src, link.dst
            measured[pair] = measured[pair].with_speeds_of(before)
        unknown = [link for link in look.links if link not in look.speeds]
        nodes = self.prober.nodes
        streams = [link for link in unknown if link in self.timetable.streamed]
        rounds = stream_rounds(self.asked, streams, nodes, look.share)
        for number, some in enumerate(rounds, start=1):
            self.report(f"goodput, round {number} of {len(rounds)}")
            _add(measured, fill_links(self.prober, some, self.asked.links))
        floods = [link for link in unknown if link in self.timetable.flooded]
        for pair, rate in self.flood(link_floods(floods, nodes, look.share)).items():
            measured[pair] = replace(measured[pair], rate_mbyte_s=rate)
        return [judge(link, self.asked, measured[link.src, link.dst]) for link in look.links]

    def flood(self, floods: Sequence[Flood]) -> dict[tuple[str, str], float]:
        """The rates of links, by datagrams."""
        if not floods:
            return {}
        self.report(f"rates of {len(floods)} links, {floods_s(floods):.0f} s")
        return flood_links(self.prober, floods)

    def paths(self, look: _Look) -> list[Verdict]:
        """The pairs of nodes without a link, against what the links between them make together; no goodput."""
        verdicts = []
        for number, group in enumerate(
            groups := path_groups(look.links, self.prober.nodes), start=1
        ):
            self.report(f"paths over several links, {number} of {len(groups)}")
            pinged = ping_links(self.prober, group, self.ways, self.effort, PATH_APART)
            asked = replace(self.asked, links=self.ways)
            verdicts += [judge(path, asked, pinged[path.src, path.dst]) for path in group]
        return verdicts

    def accesses(self) -> list[AccessVerdict]:
        """What nodes send, and receive, on all their links at once; again where that is not what they may."""
        doubtful = self.asked.accesses()
        verdicts: dict[tuple[str, str], AccessVerdict] = {}
        for _ in range(LOOKS):
            rates = self.flood(shared_floods(access.links for access in doubtful))
            for access in doubtful:
                carried = sum(
                    rates[link.src, link.dst] * access.share_pct(link) / 100
                    for link in access.links
                )
                most = self.asked.access_mbyte_s(access)
                verdicts[access.kind, access.node] = judge_access(access, most, carried)
            doubtful = [one for one in doubtful if not verdicts[one.kind, one.node].holds]
        return list(verdicts.values())


def _add(measured: Pinged, news: Mapping[tuple[str, str], Mapping[str, float | None]]) -> None:
    for pair, values in news.items():
        measured[pair] = replace(measured[pair], **values)  # type: ignore[arg-type]
