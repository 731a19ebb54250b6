"""Measures every link in rounds (`cluster.contract.probe_results`) and has `cluster.contract.verdicts` judge."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.base.console import Console
from cluster.base.errors import ClusterError
from cluster.contract.checks import round_trip_jitter_ms
from cluster.contract.floods import USUAL, Flood, floods_s, link_floods, shared_floods
from cluster.contract.gloo import gloo_note
from cluster.contract.measured import Measured, Rate
from cluster.contract.probe_plan import PATH_APART, Effort
from cluster.contract.probe_results import (
    Pinged,
    Rates,
    burst_buffers,
    by_clocks,
    fill_links,
    flood_links,
    ping_links,
    ping_losses,
)
from cluster.contract.probe_rounds import path_groups
from cluster.contract.probe_schedule import (
    ProbeSchedule,
    budget_s,
    make_probe_schedule,
    stream_rounds,
)
from cluster.contract.probe_session import ProbeSession
from cluster.contract.verdicts import AccessVerdict, Contract, Verdict, judge, judge_access
from cluster.contract.witness import DropCounters, Witness
from cluster.links.expected import Access, Expected
from cluster.links.link import paths
from cluster.shaping.host_load import compare_readings, overload_sentence
from cluster.shaping.link_state import LinkState, expected_of, read_link_state, settings_document
from cluster.ssh.fleet import Fleet
from protocol.link import Link, Pair

LOOKS = 3  # at a link that is not what was asked
DRAIN_S = 0.5  # and twice the queue: what goodput probes left there must not delay the next pings
QUIET_S = 3.0  # before the second look, and twice as long before the third, where the host was the limit: that may pass


def measure_contract(
    fleet: Fleet,
    link_state: LinkState,
    console: Console,
    effort: Effort,
    most_s: float | None = None,
) -> Contract:
    """Measure all links in force.

    Args:
        fleet: the nodes.
        link_state: their links, as just read.
        console: where the plan and the progress go.
        effort: how thoroughly.
        most_s: how long it may take with TCP on every link, if not what `cluster.contract.probe_schedule.budget_s`
        says.

    Raises:
        ClusterError: no link is shaped, so nothing was asked, or a node has lost its links.
        NodeError: a node does not answer, or its probe failed.
    """
    _check_whole(link_state)
    started = time.monotonic()
    asked, nodes = expected_of(link_state), [node.name for node in fleet.nodes]
    via = {path.end_to_end(): path.via for path in link_state.paths}
    most_s = budget_s(len(nodes), effort) if most_s is None else most_s
    schedule = make_probe_schedule(asked, list(via), nodes, effort, link_state.seed, most_s)
    console.say(f"contract: {len(link_state.links)} links, about {schedule.seconds:.0f} s")
    with ProbeSession(fleet) as session, console.progress("contract") as report:
        witness = Witness(fleet, session, link_state.shown)
        survey = _Survey(session, witness, asked, via, effort, schedule, report)
        of_links, links_again = survey.until_sure(survey.links, link_state.links)
        of_paths, paths_again = survey.until_sure(survey.paths, list(via))
        accesses = survey.accesses() if effort.speeds else []
    verdicts = (*of_links, *of_paths)
    contract = Contract(
        verdicts,
        tuple(accesses),
        time.monotonic() - started,
        schedule.seconds,
        links_again + paths_again,
        (*link_state.notes, *_notes(link_state, schedule, gloo_note(verdicts))),
        settings=settings_document(link_state),
    )
    sure = contract.holds and not contract.measured_again
    return contract if sure else _note_overload(contract, fleet, link_state, witness.most_late_ms)


def _note_overload(contract: Contract, fleet: Fleet, before: LinkState, late_ms: float) -> Contract:
    """Add what the host had to do with it, if anything."""
    load = compare_readings(before.shown, read_link_state(fleet).shown, late_ms)
    # All of the time together may have been well where a part of it was not.
    overload = overload_sentence(load.limits or contract.limits)
    if not overload:
        return contract
    return replace(contract, notes=(*contract.notes, overload), overloaded=True)


def _notes(link_state: LinkState, schedule: ProbeSchedule, gloo: str) -> list[str]:
    """What was not measured, and what gloo makes of the links."""
    apart = len(paths(link_state.links)) if link_state.isolated else 0
    isolated = f"{apart} pairs of nodes without a link are isolated: not measured" if apart else ""
    return [note for note in (schedule.note, isolated, clocks_note(link_state), gloo) if note]


def clocks_note(link_state: LinkState) -> str:
    """Of links between nodes that have no common clock; '' where all have one."""
    asked = expected_of(link_state)
    between = sum(not asked.has_one_clock(link.ends) for link in link_state.links)
    if not between:
        return ""
    return f"{between} links are between hosts, without a common clock: of their delays only the round trip is judged"


def _check_whole(link_state: LinkState) -> None:
    """Raise where there is no link, or a neighbour has no plan: its links would be missing, and nobody would see it."""
    if not link_state.links:
        raise ClusterError(
            "no link is shaped: there is nothing to verify",
            "python -m cluster.shape --profile mobile",
        )
    neighbours = {peer for plan in link_state.plans.values() for peer in plan.peers}
    bare = sorted(neighbours - set(link_state.plans))
    if bare:
        message = f"the links of {', '.join(bare)} are no longer in force"
        raise ClusterError(
            "\n".join([message, *(f"  {note}" for note in link_state.notes)]),
            "python -m cluster.shape --profile NAME lays them anew",
        )


@dataclass(frozen=True)
class _Look:
    """What is to be measured, at one go.

    Attributes:
        links: these.
        speeds: links whose speed is known already, with it.
        earlier: what was found before, while the host was well: it counts, too, where chance decides.
        share: of what usually goes side by side.
    """

    links: Sequence[Link]
    speeds: Mapping[Link, Measured] = field(default_factory=dict)
    earlier: Mapping[Link, Measured] = field(default_factory=dict)
    share: float = 1.0

    @property
    def is_repeated(self) -> bool:
        """Whether these links were not as asked before."""
        return self.share < 1


@dataclass(frozen=True)
class _Survey:
    """One measurement of all that was asked; `via`: the paths over several links, from end to end -> nodes between."""

    session: ProbeSession
    witness: Witness
    asked: Expected
    via: Mapping[Link, tuple[str, ...]]
    effort: Effort
    schedule: ProbeSchedule
    report: Callable[[str], None]

    def until_sure(
        self, measure: Callable[[_Look], list[Verdict]], links: Sequence[Link]
    ) -> tuple[list[Verdict], int]:
        """Measure, and again what is not as asked: the last verdicts, and how many links were measured again.

        A busy moment of the host passes; a link that is wrong stays wrong. Each time less goes side by side, and
        for longer: it may have been too much for the machine. What is said in the end is what the last look showed;
        of what chance decides, what all of them showed together, but for those in which the host was busy.
        """
        verdicts, again = measure(_Look(links)), 0
        for look in range(1, LOOKS):
            doubtful = [v for v in verdicts if v.failed]
            if not doubtful:
                break
            again += len(doubtful)
            what = Counter(name for v in doubtful for name in v.failed)
            why = ", ".join(f"{name} of {count}" for name, count in what.most_common())
            self.report(f"{len(doubtful)} links measured again: {why}")
            busy = any(v.undecided for v in doubtful)
            drain_s = DRAIN_S + 2 * max(link.buffer_ms for link in links) / 1000
            time.sleep(max(drain_s, QUIET_S * look if busy else 0.0))
            known = {v.link: v.measured for v in doubtful if v.speed_holds}
            earlier = {v.link: v.measured for v in doubtful if not v.undecided}
            some = _Look([v.link for v in doubtful], known, earlier, 0.5**look)
            news = {v.link: v for v in measure(some)}
            verdicts = [news.get(v.link, v) for v in verdicts]
        return verdicts, again

    def links(self, look: _Look) -> list[Verdict]:
        """Everything about these links."""
        self.report("round trips, jitter and loss")
        pinged = ping_links(self.session, look.links, self.asked.links, self.effort)
        measured = by_clocks(pinged, self.asked)
        flawed = [link for link in look.links if link.is_impaired]
        counters = self.losses(flawed, self.asked.links, measured) if flawed else DropCounters()
        for link, before in look.speeds.items():
            pair = link.src, link.dst
            measured[pair] = measured[pair].with_speeds_of(before)
        # Of a link over which no ping comes back TCP would try for a minute to find the same.
        unknown = [
            link
            for link in look.links
            if link not in look.speeds and math.isfinite(measured[link.ends].rtt_ms)
        ]
        nodes = self.session.nodes
        streams = [link for link in unknown if link in self.schedule.streamed]
        rounds = stream_rounds(self.asked, streams, nodes, look.share)
        for number, some in enumerate(rounds, start=1):
            self.report(f"goodput, round {number} of {len(rounds)}")
            _add(measured, fill_links(self.session, some, self.asked))
        # Datagrams tell what TCP makes of a busy host from what a link carries.
        flooded = self.schedule.flooded | (frozenset(streams) if look.is_repeated else frozenset())
        floods = [link for link in unknown if link in flooded]
        pace = USUAL if look.is_repeated else self.schedule.pace
        planned = link_floods(floods, nodes, pace, look.share, losses=self.effort.losses)
        for pair, rate in self.flood(planned).items():
            measured[pair] = replace(measured[pair], rate=rate)
        burst = [link for link in unknown if link in self.schedule.burst]
        for pair, buffer_ms in self.burst(burst).items():
            measured[pair] = replace(measured[pair], buffer_ms=buffer_ms)
        if flawed:
            counters = counters.closed(self.witness.received())
            for link in flawed:
                drop_count = counters.of(link)
                measured[link.ends] = replace(measured[link.ends], drop_count=drop_count)
        self.pool(measured, look)
        return self.judged(look.links, self.asked, measured)

    def pool(self, measured: Pinged, look: _Look) -> None:
        """Have what earlier looks found count, too, in `measured`, where chance decides."""
        for link, before in look.earlier.items():
            if link.is_impaired:
                measured[link.ends] = measured[link.ends].with_losses_and(before)
            if round_trip_jitter_ms(link, self.asked):
                measured[link.ends] = measured[link.ends].with_delays_and(before)

    def losses(
        self, links: Sequence[Link], asked: Sequence[Link], measured: Pinged
    ) -> DropCounters:
        """Losses by more pings, into `measured`. Returns what the wires had counted before and after them."""
        before = self.witness.received()
        found = ping_losses(self.session, links, asked, self.effort)
        for pair, many in found.items():
            measured[pair] = measured[pair].with_losses_of(many)
        return DropCounters(before, self.witness.received())

    def judged(self, links: Sequence[Link], asked: Expected, measured: Pinged) -> list[Verdict]:
        """Each link's verdict; where something is not as asked, by what the nodes on its way say of their host."""
        verdicts = [judge(link, asked, measured[link.src, link.dst]) for link in links]
        if any(verdict.broken for verdict in verdicts):
            self.witness.look()
        return [self.weighed(v, asked) if v.broken else v for v in verdicts]

    def weighed(self, verdict: Verdict, asked: Expected) -> Verdict:
        """A link that is not as asked, once more, with what the host lacked while it was measured."""
        link, measured = verdict.link, verdict.measured
        nodes = (link.src, *self.via.get(link, ()), link.dst)
        return judge(link, asked, measured, self.witness.strain(nodes, measured.late_ms))

    def flood(self, floods: Sequence[Flood]) -> Rates:
        """The rates of links, by datagrams."""
        if not floods:
            return {}
        self.report(f"rates of {len(floods)} links, {floods_s(floods):.0f} s")
        return flood_links(self.session, floods, self.asked.frame_bytes)

    def burst(self, links: Sequence[Link]) -> dict[Pair, float]:
        """The queues of links, in ms, by bursts."""
        if not links:
            return {}
        self.report(f"queues of {len(links)} links")
        return burst_buffers(self.session, links, self.asked.frame_bytes)

    def paths(self, look: _Look) -> list[Verdict]:
        """The pairs of nodes without a link, against what the links between them make together; no goodput."""
        verdicts = []
        for number, group in enumerate(
            groups := path_groups(look.links, self.session.nodes), start=1
        ):
            self.report(f"paths over several links, {number} of {len(groups)}")
            ways = list(self.via)
            pinged = by_clocks(
                ping_links(self.session, group, ways, self.effort, PATH_APART), self.asked
            )
            flawed = [path for path in group if path.is_impaired]
            if flawed:
                self.losses(flawed, ways, pinged)
            self.pool(pinged, replace(look, earlier=_of(look.earlier, group)))
            verdicts += self.judged(group, replace(self.asked, links=ways), pinged)
        return [replace(verdict, via=self.via[verdict.link]) for verdict in verdicts]

    def accesses(self) -> list[AccessVerdict]:
        """What nodes send, and receive, on all their links at once; again where that is not what they may."""
        doubtful = self.asked.accesses()
        verdicts: dict[tuple[str, str], AccessVerdict] = {}
        for _ in range(LOOKS):
            # A link of both an uplink and a downlink is flooded for each of them.
            for kind in ("uplink", "downlink"):
                some = [access for access in doubtful if access.kind == kind]
                rates = self.flood(shared_floods(access.links for access in some))
                verdicts |= {(v.kind, v.node): v for v in self.judged_accesses(some, rates)}
            doubtful = [one for one in doubtful if not verdicts[one.kind, one.node].holds]
        return list(verdicts.values())

    def judged_accesses(self, accesses: Sequence[Access], rates: Rates) -> list[AccessVerdict]:
        """As `judged`, of what nodes carry on all their links."""
        carried = {access: _together(access, rates) for access in accesses}
        most = {access: self.asked.access_mbyte_s(access) for access in accesses}
        verdicts = {one: judge_access(one, most[one], carried[one]) for one in accesses}
        if not all(verdict.holds for verdict in verdicts.values()):
            self.witness.look()
        for one in [one for one, verdict in verdicts.items() if not verdict.holds]:
            peers = {node for link in one.links for node in (link.src, link.dst)} - {one.node}
            strain = self.witness.strain([one.node, *sorted(peers)])
            verdicts[one] = judge_access(one, most[one], carried[one], strain)
        return list(verdicts.values())


def _of(found: Mapping[Link, Measured], links: Sequence[Link]) -> dict[Link, Measured]:
    return {link: measured for link, measured in found.items() if link in links}


def _together(access: Access, rates: Rates) -> Rate:
    """What all its links carried at once; the machine was the limit where it did not fill one of them."""
    found = {link: rates[link.ends] for link in access.links}
    mbyte_s = sum(rate.mbyte_s * access.share_pct(link) / 100 for link, rate in found.items())
    return Rate(mbyte_s, min(rate.full_pct for rate in found.values()))


def _add(measured: Pinged, news: Mapping[tuple[str, str], Mapping[str, float | None]]) -> None:
    for pair, values in news.items():
        measured[pair] = replace(measured[pair], **values)  # type: ignore[arg-type]
