"""The critical path of a run: the chain of computing, carrying and waiting that made it as long as it was. Pure.

The walk starts at the last rank's end and goes back in time. What a rank does between collectives counts for that rank.
Where it waited for a collective, the walk goes back through that (gloo_path.py) to the rank whose arrival determined
its end, and continues there. Each second from the first rank's start to the last one's end is passed once, so the parts
add up to all of them.

If a collective took longer than its model, the rest is unknown: lost packets, a busy host, concurrent collectives. If
it was quicker, its stretches are scaled down, first of all the cost of TCP's window. A collective that was done before
a rank waited for it held nobody up, and is on no path.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective, Part, by_key
from cluster.accounting.gloo_path import KINDS, Chain, Stretch, find_chain
from cluster.accounting.rank_time import RankTime
from cluster.accounting.tcp_timing import Windows
from cluster.accounting.tcp_windows import windows_of_run

MOST_STEPS = 1_000_000  # messages of all ranks that are replayed: some seconds
COST = 3  # of a replay with its walk back, in messages
LEEWAY_S = 1e-3  # tolerance between the clocks that time one end and the next beginning
Key = tuple[str, str, int]


@dataclass(frozen=True)
class CriticalPath:
    """The critical path. Seconds add up to `wall_s`.

    Attributes:
        wall_s: from the first rank's start until the last one's end.
        ranks: seconds by rank and activity.
        carriers: seconds by carrier (a link, an uplink, a downlink) and delay, bytes or window.
        not_known_s: seconds of collectives that their model does not explain.
        passed: the number of collectives on the path.
        replayed: the number of them walked back through; others are divided like those of their kind, purpose and size.
    """

    wall_s: float
    ranks: Mapping[tuple[int, str], float]
    carriers: Mapping[Stretch, float]
    not_known_s: float
    passed: int
    replayed: int


@dataclass
class _Seconds:
    """The seconds passed so far."""

    ranks: defaultdict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    carriers: defaultdict[Stretch, float] = field(default_factory=lambda: defaultdict(float))
    not_known_s: float = 0.0
    passed: int = 0
    replayed: int = 0


@dataclass(frozen=True)
class _Passage:
    """The path through one collective.

    Attributes:
        origin: the rank that it leads back to.
        came: when that rank arrived.
        seconds: measured, by stretch, divided as in the model.
        not_known_s: the rest.
        is_replayed: whether this collective itself was walked back through.
    """

    origin: int
    came: float
    seconds: Mapping[Stretch, float]
    not_known_s: float
    is_replayed: bool = False


def find_path(
    collectives: Sequence[Collective],
    ranks: Sequence[RankTime],
    network: Network,
    *,
    slow_start: bool = False,
) -> CriticalPath | None:
    """Return the critical path; None if a rank's start or end is unknown, or if no collective on it has a model.

    Args:
        collectives: all of the run.
        ranks: in order.
        network: links.
        slow_start: whether an idle connection restarts with slow start.
    """
    if not ranks or any(rank.end <= rank.start for rank in ranks):
        return None
    windows = windows_of_run(collectives, network, slow_start=slow_start)
    passages = _Passages(collectives, network, windows)
    walk = _Walk(collectives, ranks, passages.through)
    found = walk.back()
    if found.passed and not found.replayed:
        return None
    return CriticalPath(
        walk.wall_s,
        dict(found.ranks),
        dict(found.carriers),
        found.not_known_s,
        found.passed,
        found.replayed,
    )


class _Walk:
    """The walk from the last end back to the first start."""

    def __init__(
        self,
        collectives: Sequence[Collective],
        ranks: Sequence[RankTime],
        through: Callable[[Collective, Part], _Passage],
    ) -> None:
        self._ranks, self._through = ranks, through
        self._began = min(rank.start for rank in ranks)
        self._waited: list[list[tuple[Part, Collective]]] = [[] for _ in ranks]
        for one in collectives:
            for part in one.parts:
                if not part.hidden:
                    self._waited[part.rank].append((part, one))
        for own in self._waited:
            own.sort(key=lambda item: item[0].ended)
        self._used: set[int] = set()

    @property
    def wall_s(self) -> float:
        """The seconds of the whole run."""
        return max(rank.end for rank in self._ranks) - self._began

    def back(self) -> _Seconds:
        """Walk back; return all seconds, each counted once."""
        seconds = _Seconds()
        rank = max(range(len(self._ranks)), key=lambda rank: self._ranks[rank].end)
        now = self._ranks[rank].end
        while now > self._began:
            waited = self._latest(rank, now)
            ended = min(now, waited[0].ended) if waited else self._began
            self._alone(seconds, rank, max(ended, self._began), now)
            now = ended
            if waited and ended > self._began:
                rank, now = self._pass(seconds, waited, ended)
        return seconds

    def _latest(self, rank: int, now: float) -> tuple[Part, Collective] | None:
        """Return the last collective that the rank had waited for by `now`; each only once, as clocks may err."""
        own = self._waited[rank]
        while own:
            part, one = own[-1]
            if part.ended <= now + LEEWAY_S and id(one) not in self._used:
                return own.pop()
            own.pop()
        return None

    def _alone(self, seconds: _Seconds, rank: int, since: float, until: float) -> None:
        for what, s in self._ranks[rank].between(since, until).items():
            seconds.ranks[rank, what] += s

    def _pass(
        self, seconds: _Seconds, waited: tuple[Part, Collective], ended: float
    ) -> tuple[int, float]:
        """Go back through a collective; return the rank and the time at which the walk continues."""
        part, one = waited
        self._used.add(id(one))
        found = self._through(one, part)
        came = min(found.came, ended)
        took_s, counts_s = ended - came, ended - max(came, self._began)
        share = counts_s / took_s if took_s > 0 else 0.0
        told_s = sum(found.seconds.values()) + found.not_known_s
        scale = share * took_s / told_s if told_s > 0 else 0.0
        for stretch, s in found.seconds.items():
            seconds.carriers[stretch] += scale * s
        seconds.not_known_s += scale * found.not_known_s if told_s > 0 else counts_s
        seconds.passed += 1
        seconds.replayed += found.is_replayed
        return found.origin, came


class _Passages:
    """Paths through collectives: replays as many as the budget allows, evenly spaced in each kind, purpose and size."""

    def __init__(
        self,
        collectives: Sequence[Collective],
        network: Network,
        windows: Callable[[Collective], Windows],
    ) -> None:
        self._network, self._windows = network, windows
        groups = by_key(collectives)
        each = MOST_STEPS // max(1, len(groups))
        self._strides = {key: _stride(group, each) for key, group in groups.items()}
        self._counts: Counter[Key] = Counter()
        self._shares: dict[Key, defaultdict[Stretch | None, float]] = {}

    def through(self, one: Collective, part: Part) -> _Passage:
        """Return the path from the end of a rank's part back through its collective."""
        number, stride = self._counts[one.key], self._strides[one.key]
        self._counts[one.key] += 1
        is_replayed = stride and number % stride == 0
        windows = self._windows(one) if is_replayed else None
        chain = find_chain(one, part.rank, self._network, windows) if is_replayed else None
        if chain is None:
            return self._like_others(one, part)
        passage = _measured(chain, part.ended)
        shares = self._shares.setdefault(one.key, defaultdict(float))
        for stretch, s in passage.seconds.items():
            shares[stretch] += s
        shares[None] += passage.not_known_s
        return passage

    def _like_others(self, one: Collective, part: Part) -> _Passage:
        """Return a path without a replay: back to the last arrival, divided like the replayed ones."""
        last = max(one.all_parts, key=lambda part: part.entered)
        took_s = max(0.0, part.ended - last.entered)
        shares = self._shares.get(one.key, defaultdict[Stretch | None, float](float))
        whole_s = sum(shares.values())
        if not whole_s:
            return _Passage(last.rank, last.entered, {}, took_s)
        seconds = {
            stretch: took_s * s / whole_s for stretch, s in shares.items() if stretch is not None
        }
        return _Passage(last.rank, last.entered, seconds, took_s * shares[None] / whole_s)


def _stride(group: Sequence[Collective], most_steps: int) -> int:
    """Return n to replay every n-th; 0 to replay none, as one alone exceeds the budget."""
    steps = COST * max(one.replay_steps for one in group)
    most = most_steps // max(1, steps)
    return -(-len(group) // most) if most else 0


def _measured(chain: Chain, ended: float) -> _Passage:
    """Scale a chain to its measured length."""
    took_s = max(0.0, ended - chain.came)
    window_s = sum(s for (_, kind), s in chain.seconds.items() if kind == "window")
    sure_s = sum(chain.seconds.values()) - window_s
    of_window = min(1.0, max(0.0, took_s - sure_s) / window_s) if window_s > 0 else 0.0
    of_others = min(1.0, took_s / sure_s) if sure_s > 0 else 0.0
    seconds = {
        stretch: s * (of_window if stretch[1] == "window" else of_others)
        for stretch, s in chain.seconds.items()
    }
    rest_s = max(0.0, took_s - sum(seconds.values()))
    return _Passage(chain.origin, chain.came, seconds, rest_s, is_replayed=True)


def path_summary(path: CriticalPath | None, ranks: Sequence[RankTime]) -> dict[str, object] | None:
    """Return `critical_path` of summary.json: docs/run-folder.md."""
    if path is None:
        return None
    by_rank: dict[str, dict[str, float]] = {}
    for (rank, what), s in sorted(path.ranks.items(), key=lambda item: -item[1]):
        if s > 0:
            by_rank.setdefault(ranks[rank].name, {})[what] = round(s, 6)
    names: defaultdict[str, float] = defaultdict(float)
    for (name, _), s in path.carriers.items():
        names[name] += s
    most_first = sorted(names.items(), key=lambda item: -item[1])
    return {
        "wall_s": round(path.wall_s, 6),
        "ranks": by_rank,
        "links": {name: {"seconds": round(s, 6)} | _by_kind(path, name) for name, s in most_first},
        "not_known_s": round(path.not_known_s, 6),
        "collectives": path.passed,
        "replayed": path.replayed,
    }


def _by_kind(path: CriticalPath, carrier: str) -> dict[str, float]:
    return {f"{kind}_s": round(path.carriers.get((carrier, kind), 0.0), 6) for kind in KINDS}


def sentence(path: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence for the user: the link with most of the path, what a better one saves, the rank with most.

    Args:
        path: the result of `path_summary`.
        changes: `what_if` of summary.json.
    """
    wall = f"{path['wall_s']:.1f}"
    alone = {rank: sum(seconds.values()) for rank, seconds in path["ranks"].items()}
    rank = max(alone, key=lambda name: alone[name], default="")
    told = [f"{rank} took {alone[rank]:.1f} s by itself"] if rank else []
    if path["links"]:
        name, row = next(iter(path["links"].items()))
        told.insert(0, f"{name} carried {row['seconds']:.1f} s of {wall}{_saving(name, changes)}")
    return f"critical path: {', '.join(told)}" if told else ""


def _saving(carrier: str, changes: Sequence[Mapping[str, Any]]) -> str:
    better = [one for one in changes if one["carrier"] == carrier]
    if not better:
        return ""
    best = max(better, key=lambda one: float(one["saves_s"]))
    how = "twice as fast" if best["what"] == "rate" else "half as long"
    return f" ({how} would save {best['saves_s']:.1f} s)"
