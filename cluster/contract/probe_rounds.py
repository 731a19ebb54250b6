"""Groups probes that do not disturb one another into rounds. Pure."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from cluster.contract.probe_plan import joins, ping_pairs
from protocol.link import Link


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


def _first_fit(
    links: Sequence[Link],
    nodes: Sequence[str],
    budget_mbyte_s: float,
    single: Collection[str],
    load_mbyte_s: Callable[[Link], float],
) -> list["_Round"]:
    place = {name: index for index, name in enumerate(nodes)}
    least = min(map(load_mbyte_s, links), default=0.0)
    rounds: list[_Round] = []
    unfilled: list[_Round] = []
    for link in sorted(links, key=lambda link: (place[link.dst] - place[link.src]) % len(nodes)):
        load = load_mbyte_s(link)
        found = next((one for one in unfilled if one.takes(link, budget_mbyte_s - load)), None)
        if found is None:
            found = _Round(frozenset(single))
            rounds.append(found)
            unfilled.append(found)
        found.add(link, load)
        if found.load + least > budget_mbyte_s or len(found.links) == len(nodes):
            unfilled.remove(found)
    return rounds


@dataclass(eq=False)
class _Round:
    single: frozenset[str]
    links: list[Link] = field(default_factory=list)
    load: float = 0.0
    busy: set[tuple[str, str]] = field(default_factory=set)

    def takes(self, link: Link, most_mbyte_s: float) -> bool:
        """Return whether the link may join this round, which must carry no more than `most_mbyte_s` yet."""
        asked = self._ends(link) | {(link.dst, link.src)}
        return self.load <= most_mbyte_s and self.busy.isdisjoint(asked)

    def add(self, link: Link, load_mbyte_s: float) -> None:
        self.links.append(link)
        self.load += load_mbyte_s
        self.busy |= self._ends(link) | {(link.src, link.dst)}

    def _ends(self, link: Link) -> set[tuple[str, str]]:
        """Return what a link occupies: one node's sending and the other's receiving; of a node in `single`, both."""
        ends = {("from", link.src), ("to", link.dst)}
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
