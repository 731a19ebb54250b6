"""Measures every link: orders of `cluster.probes`, through `cluster.prober`; `cluster.contract` judges."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cluster.console import Console
from cluster.contract import Contract, UplinkVerdict, Verdict, is_rough, judge, judge_uplink
from cluster.errors import ClusterError
from cluster.expected import Asked
from cluster.fleet import Fleet
from cluster.links import Link, paths
from cluster.measured import Measured, summarise_pings
from cluster.prober import Prober
from cluster.probes import (
    FLOOD_LIMIT_MBYTE_S,
    delay_pings,
    flood_order,
    flood_skip_s,
    flooded_mbyte_s,
    loss_pings,
    ping_pairs,
    plan_rounds,
    send_order,
)
from cluster.shaping import Shape, asked_of

PingOrder = Callable[[Sequence[Link], Mapping[str, str]], dict[str, Any]]
Pinged = dict[tuple[str, str], Measured]  # by (src, dst)

PATH_APART = (
    5.0  # deviations between pings over several links: nobody could tell where one has waited
)
LOOKS = 3  # at a link that is not what was asked
DRAIN_S = 0.5  # and twice the queue: what goodput probes left there must not delay the next pings


def measure_contract(fleet: Fleet, shape: Shape, console: Console) -> Contract:
    """Measure all links in force.

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
    with Prober(fleet) as prober, console.progress("contract") as report:
        survey = _Survey(prober, asked_of(shape), report)
        of_links, links_again = survey.until_sure(survey.links, shape.links)
        of_paths, paths_again = survey.until_sure(survey.paths, list(via))
        uplinks = [survey.uplink(node) for node in shape.uplinks]
    return Contract(
        (*of_links, *(replace(v, via=via[v.link]) for v in of_paths)),
        tuple(uplinks),
        time.monotonic() - started,
        links_again + paths_again,
        (*shape.notes, *_unproved(shape)),
    )


def _unproved(shape: Shape) -> list[str]:
    fast = [link for link in shape.links if is_rough(link) and not _is_flooded(link)]
    if not fast:
        return []
    note = (
        f"{len(fast)} links have loss or jitter, and are faster than the {FLOOD_LIMIT_MBYTE_S:.0f} MB/s that our "
        "datagrams can tell: what TCP gets there is shown, not judged"
    )
    return [note]


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
        measured = _ping(self.prober, links, self.asked.links)
        streams = [link for link in links if not _is_flooded(link)]
        for number, some in enumerate(rounds := plan_rounds(streams, self.prober.nodes), start=1):
            self.report(f"goodput, round {number} of {len(rounds)}")
            _add(measured, _send(self.prober, some, self.asked.links))
        floods = [link for link in links if _is_flooded(link)]
        for number, some in enumerate(rounds := plan_rounds(floods, self.prober.nodes), start=1):
            self.report(f"rates, round {number} of {len(rounds)}")
            rates = _flood(self.prober, {link.src: [link] for link in some})
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
            pinged = _ping(self.prober, group, group, partial(delay_pings, apart=PATH_APART))
            asked = replace(self.asked, links=group)
            verdicts += [judge(path, asked, pinged[path.src, path.dst]) for path in group]
        return verdicts

    def uplink(self, node: str) -> UplinkVerdict:
        """What a node sends on all its links at once; once more if that is not what it may."""
        self.report(f"uplink of {node}")
        links = [link for link in self.asked.links if link.src == node]
        most = min(self.asked.uplinks[node], sum(link.rate_mbyte_s for link in links))
        for _ in range(LOOKS):
            rates = _flood(self.prober, {node: links})
            verdict = judge_uplink(node, most, sum(rates.values()))
            if verdict.holds:
                break
        return verdict


def _is_flooded(link: Link) -> bool:
    """Whether a link's speed is measured by datagrams, because TCP cannot fill it, and they can."""
    return is_rough(link) and link.rate_mbyte_s <= FLOOD_LIMIT_MBYTE_S


def _add(measured: Pinged, news: Mapping[tuple[str, str], Mapping[str, float | None]]) -> None:
    for pair, values in news.items():
        measured[pair] = replace(measured[pair], **values)  # type: ignore[arg-type]


def _ping(
    prober: Prober, links: Sequence[Link], asked: Sequence[Link], order: PingOrder = delay_pings
) -> Pinged:
    """Idle round trips of all pairs at once: pings are too small to disturb one another."""
    measured = _ping_pairs(prober, links, asked, order)
    lossy = [link for link in links if link.loss_pct]
    if lossy:
        for pair, many in _ping_pairs(prober, lossy, asked, loss_pings).items():
            measured[pair] = replace(measured[pair], sent=many.sent, arrived=many.arrived)
    return measured


def _ping_pairs(
    prober: Prober, links: Sequence[Link], asked: Sequence[Link], order: PingOrder
) -> Pinged:
    """Each node that pings also pings itself: what that takes, at the same moment, is the host's own share."""
    pairs = ping_pairs(links, prober.nodes)
    orders = {
        src: order(
            [link for link in asked if _joins(link, src, peers)],
            {peer: prober.address(peer) for peer in (*peers, src)},
        )
        for src, peers in pairs.items()
    }
    pings = prober.ask(orders)
    host_ms = {src: statistics.median(pings[src].pop(src)["rtt_ms"]) for src in pings}
    arrivals = prober.ask(_arrival_orders(prober, pings))
    measured = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            jitter = any(link.jitter_ms for link in asked if {link.src, link.dst} == {src, peer})
            there, back = summarise_pings(ping, arrivals[peer][src], host_ms[src], jitter=jitter)
            measured[src, peer], measured[peer, src] = there, back
    return measured


def _arrival_orders(
    prober: Prober, pings: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Ask every node that was pinged what arrived there, and from whom."""
    series: dict[str, dict[str, Any]] = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            series.setdefault(peer, {})[src] = [prober.address(src), ping["series"]]
    return {peer: {"do": "arrivals", "series": of} for peer, of in series.items()}


def _joins(link: Link, src: str, peers: Sequence[str]) -> bool:
    return (link.src == src and link.dst in peers) or (link.dst == src and link.src in peers)


def _send(
    prober: Prober, links: Sequence[Link], asked: Sequence[Link]
) -> dict[tuple[str, str], dict[str, float | None]]:
    orders = {link.src: send_order(link, asked, prober.address(link.dst)) for link in links}
    answers = prober.ask(orders)
    return {
        (link.src, link.dst): {
            "goodput_mbyte_s": float(answers[link.src]["goodput_mbyte_s"]),
            "loaded_rtt_ms": _median(answers[link.src]["loaded_rtt_ms"]),
        }
        for link in links
    }


def _flood(prober: Prober, links: Mapping[str, Sequence[Link]]) -> dict[tuple[str, str], float]:
    """The rates of links, in bytes on the wire; those of one node are measured at once."""
    addresses = {name: prober.address(name) for name in prober.nodes}
    sent = prober.ask({src: flood_order(own, addresses) for src, own in links.items()})
    every = [link for own in links.values() for link in own]
    time.sleep(max(link.delay_ms + link.buffer_ms for link in every) / 1000)
    orders: dict[str, dict[str, Any]] = {}
    for link in every:
        order = orders.setdefault(
            link.dst, {"do": "flooded", "series": {}, "skip_s": flood_skip_s(every)}
        )
        order["series"][link.src] = [prober.address(link.src), sent[link.src]["series"]]
    found = prober.ask(orders)
    return {
        (link.src, link.dst): flooded_mbyte_s(link, **found[link.dst][link.src]) for link in every
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
