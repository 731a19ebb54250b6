"""Measures every link: a node.probe on each node, orders from `cluster.probes`, verdicts from `cluster.contract`."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from cluster.console import Console
from cluster.contract import Contract, Measured, Verdict, judge, summarise_pings
from cluster.errors import ClusterError, NodeError
from cluster.fleet import Fleet, RemoteProcess
from cluster.links import Link, paths
from cluster.probes import delay_pings, loss_pings, ping_pairs, plan_rounds, send_order
from cluster.shaping import Shape

PingOrder = Callable[[Sequence[Link], Mapping[str, str]], dict[str, Any]]

DRAIN_S = 0.5  # and twice the queue: what goodput probes left there must not delay the next pings
BASE_PINGS = 30
BASE_INTERVAL_MS = 5.0


class Prober:
    """A node.probe on every node, for as long as the `with` block lasts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._addresses = {node.name: node.address for node in fleet.nodes}
        self._processes: dict[str, RemoteProcess] = {}
        self._lines: dict[str, Iterator[str]] = {}

    def __enter__(self) -> Self:
        try:
            for name, address in self._addresses.items():
                process = self._fleet.start(name, ("python3", "-m", "node.probe", address))
                self._processes[name], self._lines[name] = process, process.lines()
            self._answers(list(self._processes))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()

    def address(self, node: str) -> str:
        """A node's address on the data network."""
        return self._addresses[node]

    def ask(self, orders: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, Any]]:
        """Give each node its order, all at once; their answers, by node.

        Raises:
            NodeError: a probe failed.
        """
        for name, order in orders.items():
            self._processes[name].write(json.dumps(order).encode() + b"\n")
        return self._answers(list(orders))

    def _answers(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        answers = {name: self._answer(name, self._processes[name]) for name in names}
        errors = {name: answer["error"] for name, answer in answers.items() if "error" in answer}
        if errors:
            raise NodeError("the links cannot be measured", errors, "python -m cluster.doctor")
        return answers

    def _answer(self, name: str, process: RemoteProcess) -> dict[str, Any]:
        line = next(self._lines[name], None)
        if line is None:
            _, stderr = process.wait()
            words = stderr.decode(errors="replace").strip().splitlines()
            raise NodeError("the probe ended", {name: words[-1] if words else "no SSH"})
        answer: dict[str, Any] = json.loads(line)
        return answer


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
    with Prober(fleet) as prober, console.progress("contract") as report:
        verdicts = _measure(prober, fleet, shape, shape.links, report)
        doubtful = [v.link for v in verdicts if v.broken]
        if doubtful:
            report(f"{len(doubtful)} links measured again")
            time.sleep(DRAIN_S + 2 * max(link.buffer_ms for link in shape.links) / 1000)
            again = {v.link: v for v in _measure(prober, fleet, shape, doubtful, report)}
            verdicts = [again.get(v.link, v) for v in verdicts]
        verdicts += _measure_paths(prober, fleet, shape, report)
    rough = sum(1 for link in shape.links if link.loss_pct or link.jitter_ms)
    note = f"{rough} links have loss or jitter: TCP's goodput on them is measured, not judged"
    notes = (*shape.notes, note) if rough else shape.notes
    return Contract(tuple(verdicts), time.monotonic() - started, len(doubtful), notes)


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


def _measure(
    prober: Prober, fleet: Fleet, shape: Shape, links: Sequence[Link], report: Callable[[str], None]
) -> list[Verdict]:
    report("round trips, jitter and loss")
    pinged = _ping(prober, fleet, shape, links)
    rounds = plan_rounds(links, [node.name for node in fleet.nodes])
    goodput: dict[Link, float] = {}
    for number, links_of_round in enumerate(rounds, start=1):
        report(f"goodput, round {number} of {len(rounds)}")
        goodput |= _send(prober, shape, links_of_round)
    return [
        judge(
            link,
            shape.links,
            shape.mtu,
            replace(pinged[link.src, link.dst], goodput_mbyte_s=goodput[link]),
        )
        for link in links
    ]


def _measure_paths(
    prober: Prober, fleet: Fleet, shape: Shape, report: Callable[[str], None]
) -> list[Verdict]:
    """The pairs of nodes without a link, against what the links between them make together.

    On links with jitter one node pings at a time: where pings of many nodes meet on a link, one that follows another
    closely waits for it.
    """
    by_link = {path.end_to_end(): path for path in paths(shape.links)}
    jitter = any(link.jitter_ms for link in by_link)
    groups: dict[str, list[Link]] = {}
    for link in by_link:
        groups.setdefault(min(link.src, link.dst) if jitter else "", []).append(link)
    verdicts = []
    for number, links in enumerate(groups.values(), start=1):
        report(f"ways over several links, {number} of {len(groups)}")
        pinged = _ping(prober, fleet, replace(shape, links=tuple(links)), links)
        judged = [judge(link, links, shape.mtu, pinged[link.src, link.dst]) for link in links]
        verdicts += [replace(v, via=by_link[v.link].via) for v in judged]
    return verdicts


def _ping(
    prober: Prober, fleet: Fleet, shape: Shape, links: Sequence[Link]
) -> dict[tuple[str, str], Measured]:
    """Idle round trips of all pairs at once, by (src, dst): pings are too small to disturb one another."""
    pairs = ping_pairs(links, [node.name for node in fleet.nodes])
    base_ms = _host_base_ms(prober, sorted(pairs))
    measured = _ping_pairs(prober, shape, pairs, base_ms, delay_pings)
    lossy = [link for link in links if link.loss_pct]
    if lossy:
        pairs = ping_pairs(lossy, [node.name for node in fleet.nodes])
        for way, many in _ping_pairs(prober, shape, pairs, base_ms, loss_pings).items():
            measured[way] = replace(measured[way], sent=many.sent, arrived=many.arrived)
    return measured


def _ping_pairs(
    prober: Prober,
    shape: Shape,
    pairs: Mapping[str, Sequence[str]],
    base_ms: float,
    order: PingOrder,
) -> dict[tuple[str, str], Measured]:
    orders = {
        src: order(
            [link for link in shape.links if _joins(link, src, peers)],
            {peer: prober.address(peer) for peer in peers},
        )
        for src, peers in pairs.items()
    }
    pings = prober.ask(orders)
    arrivals = prober.ask(_arrival_orders(prober, pings))
    measured = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            there, back = summarise_pings(ping, arrivals[peer][src], base_ms)
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


def _host_base_ms(prober: Prober, nodes: Sequence[str]) -> float:
    """What a ping costs where no link is between: from a node to itself, over its loopback device."""
    order = {"do": "ping", "count": BASE_PINGS, "interval_ms": BASE_INTERVAL_MS, "wait_ms": 20}
    answers = prober.ask({name: order | {"peers": {name: prober.address(name)}} for name in nodes})
    trips: list[float] = [
        trip for name, answer in answers.items() for trip in answer[name]["rtt_ms"]
    ]
    return statistics.median(trips)


def _send(prober: Prober, shape: Shape, links: Sequence[Link]) -> dict[Link, float]:
    orders = {link.src: send_order(link, shape.links, prober.address(link.dst)) for link in links}
    answers = prober.ask(orders)
    return {link: float(answers[link.src]["goodput_mbyte_s"]) for link in links}
