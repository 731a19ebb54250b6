"""Plans which probes go side by side without disturbing one another: in rounds, or each as soon as it may. Pure."""

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from cluster.contract.probe_plan import joins, ping_pairs
from protocol.link import Link

LOOK_AHEAD = 200  # probes that are tried when one ends: to try thousands takes seconds


class Probe(NamedTuple):
    """A probe whose duration is known; `load_mbyte_s`: how much of the budget it takes."""

    link: Link
    seconds: float
    load_mbyte_s: float


def plan_rounds(
    links: Sequence[Link],
    nodes: Sequence[str],
    budget_mbyte_s: float,
    single: Collection[str] = (),
    load_mbyte_s: Callable[[Link], float] = lambda link: link.rate_mbyte_s,
    share: float = 1.0,
) -> list[list[Link]]:
    """Return rounds in which no node sends twice or receives twice, and no two probes use both directions of a link.

    First fit, in the order of shifts: node i to node i+1, then to node i+2, …, which fills whole rounds.

    Args:
        links: the links to measure.
        nodes: the nodes' names, in order.
        budget_mbyte_s: the most that a round carries, unless it is a single link.
        single: nodes that must not even send and receive in the same round.
        load_mbyte_s: returns how much of the budget a link takes.
        share: the most that a round carries, as a share of what the fullest round would carry within the budget.
    """
    rounds = _first_fit(links, nodes, budget_mbyte_s, single, load_mbyte_s)
    if share < 1:
        fullest_mbyte_s = max((one.load for one in rounds), default=0.0)
        rounds = _first_fit(links, nodes, share * fullest_mbyte_s, single, load_mbyte_s)
    return [one.links for one in rounds]


def plan_starts(probes: Sequence[Probe], budget_mbyte_s: float, share: float = 1.0) -> list[float]:
    """Return when each probe starts, in seconds: as soon as its link may join those that run, the first ones first.

    A node never sends twice or receives twice, and no two probes use both directions of a link.

    Args:
        probes: one per link.
        budget_mbyte_s: the most that goes side by side, unless it is a single link.
        share: the most that goes side by side, as a share of what would be the most within the budget.
    """
    starts_s, most_mbyte_s = _start_early(probes, budget_mbyte_s)
    if share < 1:
        starts_s, _ = _start_early(probes, share * most_mbyte_s)
    return starts_s


def _start_early(probes: Sequence[Probe], budget_mbyte_s: float) -> tuple[list[float], float]:
    """Return when each probe starts, and the most that goes side by side."""
    waiting, starts_s = dict(enumerate(probes)), [0.0] * len(probes)
    running = _SideBySide(frozenset())
    ends: list[tuple[float, int]] = []  # a heap: when which probe ends
    now_s = most_mbyte_s = 0.0
    while waiting:
        ahead = islice(waiting.items(), LOOK_AHEAD)
        number = next((n for n, one in ahead if running.joins(one, budget_mbyte_s)), None)
        if number is None:
            now_s, ended = heapq.heappop(ends)
            running.remove(probes[ended].link, probes[ended].load_mbyte_s)
            continue
        probe, starts_s[number] = waiting.pop(number), now_s
        running.add(probe.link, probe.load_mbyte_s)
        most_mbyte_s = max(most_mbyte_s, running.load)
        heapq.heappush(ends, (now_s + probe.seconds, number))
    return starts_s, most_mbyte_s


def by_shift(links: Sequence[Link], nodes: Sequence[str]) -> list[Link]:
    """Return the links in the order of shifts: node i to node i+1, then to node i+2, …: many go side by side."""
    place = {name: index for index, name in enumerate(nodes)}
    return sorted(links, key=lambda link: (place[link.dst] - place[link.src]) % len(nodes))


def _first_fit(
    links: Sequence[Link],
    nodes: Sequence[str],
    budget_mbyte_s: float,
    single: Collection[str],
    load_mbyte_s: Callable[[Link], float],
) -> list["_SideBySide"]:
    least = min(map(load_mbyte_s, links), default=0.0)
    rounds: list[_SideBySide] = []
    unfilled: list[_SideBySide] = []
    for link in by_shift(links, nodes):
        load = load_mbyte_s(link)
        found = next((one for one in unfilled if one.takes(link, budget_mbyte_s - load)), None)
        if found is None:
            found = _SideBySide(frozenset(single))
            rounds.append(found)
            unfilled.append(found)
        found.add(link, load)
        if found.load + least > budget_mbyte_s or len(found.links) == len(nodes):
            unfilled.remove(found)
    return rounds


@dataclass(eq=False)
class _SideBySide:
    """Links that are probed side by side."""

    single: frozenset[str]
    links: list[Link] = field(default_factory=list)
    load: float = 0.0
    busy: set[tuple[str, str]] = field(default_factory=set)

    def takes(self, link: Link, most_mbyte_s: float) -> bool:
        """Return whether the link may join this round, which must carry no more than `most_mbyte_s` yet."""
        if self.load > most_mbyte_s:
            return False
        return self.busy.isdisjoint(self._ends(link)) and link.ends[::-1] not in self.busy

    def joins(self, probe: Probe, budget_mbyte_s: float) -> bool:
        """Return whether a probe may start now: there is room, or it goes alone."""
        return not self.links or self.takes(probe.link, budget_mbyte_s - probe.load_mbyte_s)

    def add(self, link: Link, load_mbyte_s: float) -> None:
        self.links.append(link)
        self.load += load_mbyte_s
        self.busy |= self._ends(link) | {(link.src, link.dst)}

    def remove(self, link: Link, load_mbyte_s: float) -> None:
        self.links.remove(link)
        self.load -= load_mbyte_s
        self.busy -= self._ends(link) | {(link.src, link.dst)}

    def _ends(self, link: Link) -> set[tuple[str, str]]:
        """Return what a link occupies: one node's sending and the other's receiving; of a node in `single`, both."""
        ends = {("from", link.src), ("to", link.dst)}
        if not self.single:
            return ends
        alone = self.single & {link.src, link.dst}
        return ends | {(way, node) for way in ("from", "to") for node in alone}


def path_groups(paths: Sequence[Link], nodes: Sequence[str]) -> list[list[Link]]:
    """Return groups of paths over several links to ping at once: all, or one group per pinging node if links jitter.

    If pings of many nodes meet on a link that jitters, one that follows another closely waits for it.
    """
    if not any(path.jitter_ms for path in paths):
        return [list(paths)] if paths else []
    pairs = ping_pairs(paths, nodes)
    return [
        [path for path in paths if joins(path, pinger, peers)] for pinger, peers in pairs.items()
    ]
