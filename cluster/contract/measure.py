"""Measures every link in rounds (`cluster.contract.probe_results`); `cluster.contract.verdicts` judges the results."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.base.console import Console
from cluster.base.errors import ClusterError
from cluster.contract.checks import hides_queue, is_rate_in_doubt, round_trip_jitter_ms
from cluster.contract.floods import USUAL, Flood, access_error, access_floods, floods_s, link_floods
from cluster.contract.measured import Measured, Queue, Rate
from cluster.contract.notes import notes_on
from cluster.contract.probe_concurrency import path_groups
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
from cluster.contract.probe_schedule import (
    ProbeSchedule,
    budget_s,
    make_probe_schedule,
    stream_rounds,
)
from cluster.contract.probe_session import ProbeSession
from cluster.contract.verdicts import (
    AccessVerdict,
    Contract,
    Verdict,
    carried_share,
    judge,
    judge_access,
)
from cluster.contract.witness import DropCounters, Witness
from cluster.links.expected import Access, Expected
from cluster.shaping.host_load import compare_readings, overload_sentence
from cluster.shaping.link_state import LinkState, expected_of, settings_document
from cluster.ssh.fleet import Fleet
from protocol.link import Link, Pair

BURSTS = 3  # at most, on a link whose sender was too slow
LOOKS = 3  # passes, at most, over a link that is not as asked
SMALLER = 0.5  # what one pass measures side by side, as a share of the pass before
DRAIN_S = 0.5  # plus twice the longest queue: what goodput probes left there must not delay the next pings
QUIET_S = 3.0  # before the second pass, twice as long before the third, if the host was the limit: that may pass


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
        link_state: their links, just read.
        console: receives the plan and the progress.
        effort: how thoroughly to measure.
        most_s: time limit with TCP on every link; None: as `cluster.contract.probe_schedule.budget_s`.

    Raises:
        ClusterError: no link is shaped, so nothing was asked, or a node has lost its links.
        NodeError: a node does not answer, or its probe failed.
    """
    _check_whole(link_state)
    started = time.monotonic()
    hops = {(path.src, path.dst): path.links for path in link_state.paths}
    asked = replace(expected_of(link_state), hops=hops)
    nodes = [node.name for node in fleet.nodes]
    via = {path.end_to_end(): path.via for path in link_state.paths}
    most_s = budget_s(len(nodes), effort) if most_s is None else most_s
    schedule = make_probe_schedule(asked, list(via), nodes, effort, link_state.seed, most_s)
    console.say(f"contract: {len(link_state.links)} links, about {schedule.seconds:.0f} s")
    with ProbeSession(fleet) as session, console.progress("contract") as report:
        witness = Witness(fleet.hosts, session, link_state.shown)
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
        (*link_state.notes, *notes_on(link_state, schedule, of_links, of_paths)),
        settings=settings_document(link_state),
    )
    sure = contract.holds and not contract.measured_again
    return contract if sure else _note_overload(contract, fleet.hosts, link_state, witness)


def _note_overload(
    contract: Contract, hosts: Mapping[str, str], before: LinkState, witness: Witness
) -> Contract:
    """Add a note on the host's load until the last link that was not as asked, if it was the limit."""
    load = compare_readings(before.shown, witness.latest, witness.most_late_ms, hosts)
    # The average over the whole time may be fine although the host was overloaded for a part of it.
    overload = overload_sentence(load.limits or contract.limits)
    if not overload:
        return contract
    return replace(contract, notes=(*contract.notes, overload), overloaded=True)


def _check_whole(link_state: LinkState) -> None:
    """Raise if there is no link, or if a neighbour has no plan: its links would be missing, unnoticed."""
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
            "apply them again: python -m cluster.shape --profile NAME",
        )


@dataclass(frozen=True)
class _Look:
    """One measurement pass: what to measure.

    Attributes:
        links: the links to measure.
        speeds: links whose speed is already known to hold, with its measurement.
        earlier: measurements of earlier passes without host overload; they count, too, where chance decides.
        lossy: links whose losses were not as asked in the pass before.
        share: fraction of the usual load to measure side by side.
        pace: of the most pings a second, as a share of those of the first pass.
    """

    links: Sequence[Link]
    speeds: Mapping[Link, Measured] = field(default_factory=dict)
    earlier: Mapping[Link, Measured] = field(default_factory=dict)
    lossy: Collection[Link] = ()
    share: float = 1.0
    pace: float = 1.0

    @property
    def is_repeated(self) -> bool:
        """Whether these links were not as asked in an earlier pass."""
        return self.share < 1

    def lossy_of(self, links: Sequence[Link], measured: Pinged) -> list[Link]:
        """Return the links whose losses take more pings to judge; not those that are silent."""
        return [
            link
            for link in links
            if link.is_impaired or (link in self.lossy and measured[link.ends].arrived)
        ]


@dataclass(frozen=True)
class _Survey:
    """One measurement of everything asked for; `via` maps each path, as an end-to-end link, to the nodes between."""

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
        """Measure, and repeat for links that are not as asked; return the last verdicts and the number of repetitions.

        A busy moment of the host passes; a wrong link stays wrong. Each pass measures at most half as much side by
        side, and no more than the machine has carried before, because the load may have been too much for it. The last
        pass decides; for what depends on chance, all passes count together, except those in which the host was busy.
        """
        verdicts, again = measure(_Look(links)), 0
        measured = verdicts
        earlier: dict[Link, Measured] = {}
        share = 1.0
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
            known = {v.link: v.measured for v in doubtful if v.speed_holds and v.measured.speed_by}
            # What a busy pass found is left out; what the passes before it found still counts.
            earlier |= {v.link: v.measured for v in doubtful if not v.undecided}
            share *= SMALLER * carried_share(measured)
            lossy = frozenset(v.link for v in doubtful if "loss" in v.failed)
            some = _Look([v.link for v in doubtful], known, earlier, lossy, share, SMALLER**look)
            measured = measure(some)
            news = {v.link: v for v in measured}
            verdicts = [news.get(v.link, v) for v in verdicts]
        return verdicts, again

    def links(self, look: _Look) -> list[Verdict]:
        """Measure and judge everything about these links."""
        self.report("round trips, jitter and loss")
        pinged = ping_links(self.session, look.links, self.asked.links, self.paced(look))
        measured = by_clocks(pinged, self.asked)
        flawed = [link for link in look.links if link.is_impaired]
        lossy = look.lossy_of(look.links, measured)
        counters = self.losses(lossy, self.asked.links, measured) if lossy else DropCounters()
        for link, before in look.speeds.items():
            pair = link.src, link.dst
            measured[pair] = measured[pair].with_speeds_of(before)
        # On a link over which no ping comes back, TCP would try for a minute and find the same.
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
        flooded = self.flooded(look, streams, measured)
        floods = [link for link in unknown if link in flooded]
        pace = USUAL if look.is_repeated else self.schedule.pace
        limited = [self.asked.as_limited(link) for link in floods]
        planned = link_floods(limited, nodes, pace, look.share, losses=self.schedule.losses)
        for pair, rate in self.flood(planned).items():
            measured[pair] = replace(measured[pair], rate=rate)
        burst = [link for link in unknown if link in self.schedule.burst]
        for pair, queue in self.burst(burst).items():
            measured[pair] = replace(measured[pair], queue=queue)
        if flawed:
            counters = counters.closed(self.witness.received())
            for link in flawed:
                drop_count = counters.of(link)
                measured[link.ends] = replace(measured[link.ends], drop_count=drop_count)
        self.pool(measured, look)
        return self.judged(look.links, self.asked, measured)

    def flooded(self, look: _Look, streams: Sequence[Link], measured: Pinged) -> frozenset[Link]:
        """Return the links whose rate datagrams measure: they distinguish it from TCP's response to a busy host."""
        doubtful = (
            link
            for link in streams
            if look.is_repeated or is_rate_in_doubt(link, self.asked, measured[link.ends])
        )
        return self.schedule.flooded.union(doubtful)

    def pool(self, measured: Pinged, look: _Look) -> None:
        """Add to `measured` what earlier passes found, where chance decides.

        A link without impairments loses nothing by chance: of one that lost some, the last pass decides, by many pings.
        """
        for link, before in _of(look.earlier, look.links).items():
            if link.is_impaired:
                measured[link.ends] = measured[link.ends].with_losses_and(before)
            if round_trip_jitter_ms(link, self.asked):
                measured[link.ends] = measured[link.ends].with_delays_and(before)

    def paced(self, look: _Look) -> Effort:
        """Return the effort of a pass: each may send half as many pings a second as the one before."""
        return replace(self.effort, pace=look.pace)

    def losses(
        self, links: Sequence[Link], asked: Sequence[Link], measured: Pinged
    ) -> DropCounters:
        """Measure losses by more pings, into `measured`; return the wires' counters before and after these."""
        before = self.witness.received()
        found = by_clocks(ping_losses(self.session, links, asked, self.effort), self.asked)
        for pair, many in found.items():
            measured[pair] = measured[pair].with_losses_of(many)
        return DropCounters(before, self.witness.received())

    def judged(self, links: Sequence[Link], asked: Expected, measured: Pinged) -> list[Verdict]:
        """Return each link's verdict; if it is broken, the host load of the nodes on its way is taken into account."""
        verdicts = [judge(link, asked, measured[link.src, link.dst]) for link in links]
        if any(verdict.broken for verdict in verdicts):
            self.witness.look()
        return [self.weighed(v, asked) if v.broken else v for v in verdicts]

    def weighed(self, verdict: Verdict, asked: Expected) -> Verdict:
        """Judge a failed link again, with the host load during its measurement."""
        link, measured = verdict.link, verdict.measured
        nodes = (link.src, *self.via.get(link, ()), link.dst)
        return judge(link, asked, measured, self.witness.strain(nodes, measured.late_ms))

    def flood(self, floods: Sequence[Flood]) -> Rates:
        """Measure the rates of links by datagrams."""
        if not floods:
            return {}
        self.report(f"rates of {len(floods)} links, {floods_s(floods):.0f} s")
        return flood_links(self.session, floods, self.asked.frame_bytes)

    def burst(self, links: Sequence[Link]) -> dict[Pair, Queue]:
        """Measure the queues of links by bursts; repeat those whose sender was too slow to tell."""
        found: dict[Pair, Queue] = {}
        for _ in range(BURSTS):
            if not links:
                break
            self.report(f"queues of {len(links)} links")
            for ends, queue in burst_buffers(self.session, links, self.asked.frame_bytes).items():
                found[ends] = min(found.get(ends, queue), queue, key=lambda one: one.short_ms)
            links = [link for link in links if hides_queue(link, found[link.ends])]
        return found

    def paths(self, look: _Look) -> list[Verdict]:
        """Measure pairs of nodes without a link, and judge them by the links of their paths combined; no goodput."""
        verdicts = []
        for number, group in enumerate(
            groups := path_groups(look.links, self.session.nodes), start=1
        ):
            self.report(f"paths over several links, {number} of {len(groups)}")
            ways = list(self.via)
            pinged = by_clocks(
                ping_links(self.session, group, ways, self.paced(look), PATH_APART), self.asked
            )
            lossy = look.lossy_of(group, pinged)
            if lossy:
                self.losses(lossy, ways, pinged)
            self.pool(pinged, replace(look, links=group))
            # The bursts of several links mixed have no one mean length; those of each link are judged there.
            unjudged = {ends: replace(found, gaps=None) for ends, found in pinged.items()}
            verdicts += self.judged(group, replace(self.asked, links=ways), unjudged)
        return [replace(verdict, via=self.via[verdict.link]) for verdict in verdicts]

    def accesses(self) -> list[AccessVerdict]:
        """Measure uplinks and downlinks with all their links flooded at once; repeat those that do not hold."""
        doubtful = self.asked.accesses()
        verdicts: dict[tuple[str, str], AccessVerdict] = {}
        for _ in range(LOOKS):
            # A link that belongs to both an uplink and a downlink is flooded for each of them.
            for kind in ("uplink", "downlink"):
                some = [access for access in doubtful if access.kind == kind]
                rates = self.flood(access_floods(self.asked, some))
                verdicts |= {(v.kind, v.node): v for v in self.judged_accesses(some, rates)}
            doubtful = [one for one in doubtful if not verdicts[one.kind, one.node].holds]
        return list(verdicts.values())

    def judged_accesses(self, accesses: Sequence[Access], rates: Rates) -> list[AccessVerdict]:
        """Return the verdicts on uplinks and downlinks; host load as in `judged`."""
        carried = {access: _together(access, rates) for access in accesses}
        most = {access: self.asked.access_mbyte_s(access) for access in accesses}
        errors = {access: access_error(self.asked, access) for access in accesses}
        verdicts = {
            one: judge_access(one, most[one], carried[one], error=errors[one]) for one in accesses
        }
        if not all(verdict.holds for verdict in verdicts.values()):
            self.witness.look()
        for one in [one for one, verdict in verdicts.items() if not verdict.holds]:
            peers = {node for link in one.links for node in (link.src, link.dst)} - {one.node}
            strain = self.witness.strain([one.node, *sorted(peers)])
            verdicts[one] = judge_access(one, most[one], carried[one], strain, errors[one])
        return list(verdicts.values())


def _of(found: Mapping[Link, Measured], links: Sequence[Link]) -> dict[Link, Measured]:
    return {link: measured for link, measured in found.items() if link in links}


def _together(access: Access, rates: Rates) -> Rate:
    """Return what all links of an access carried at once; the machine was the limit if it did not fill one of them."""
    found = {link: rates[link.ends] for link in access.links}
    carried, sent = (
        sum(getattr(rate, which) * access.share_pct(link) / 100 for link, rate in found.items())
        for which in ("mbyte_s", "sent_mbyte_s")
    )
    return Rate(carried, min(rate.full_pct for rate in found.values()), sent)


def _add(measured: Pinged, news: Mapping[tuple[str, str], Mapping[str, float | None]]) -> None:
    for pair, values in news.items():
        measured[pair] = replace(measured[pair], **values)  # type: ignore[arg-type]
