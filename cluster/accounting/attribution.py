"""Attribution: where the time of collectives went, in parts that add up to what was measured. Pure.

Each part is the time that is added when the model includes one more effect, always in this order:

    skew         waiting for the last rank: from the first rank's arrival until all have arrived
    distance     the delay of links, as if they were infinitely fast
    bytes        their rates, each transfer as if it were alone
    sharing      several transfers on one link, uplink or downlink
    algorithm    gloo's protocol: the receiver announces room for each message (gloo_timing.py)
    window       TCP's window, small after a pause or a loss: as the ranks' sockets reported; without a report, after a
                 pause as small as that of a new connection, which makes this part an upper limit (tcp_timing.py). In an
                 exchange also the wait until the kernel, which holds two windows, has taken what a rank sends
    loss         the rest, if TCP retransmitted anything: at most one timeout for each segment
    unexplained  what was measured beyond that: a busy host, effects without a model; negative if the collective was
                 quicker than the model

The second to the fourth add up to the lower bound (bounds.py). The order matters: time that two effects cause together
counts for the earlier one.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.accounting.bounds import Network, bound_s, flows_of
from cluster.accounting.collectives import Collective, by_key
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.tcp_timing import Windows
from cluster.accounting.tcp_windows import windows_of_run

PARTS = ("skew", "distance", "bytes", "sharing", "algorithm", "window", "loss", "unexplained")
MOST_STEPS = 1_000_000  # messages of all ranks that are replayed: some seconds
REPLAYS = 5  # of each collective
Seconds = dict[str, float]
Replay = Callable[[Collective], Seconds | None]


def attribute(
    collective: Collective, network: Network, windows: Windows | None = None
) -> Seconds | None:
    """Return the seconds of one collective by part, from the first rank's arrival until the last rank was done.

    Returns None if its end or its links are unknown.

    Args:
        collective: the collective.
        network: its links.
        windows: TCP's windows at its start; None: unlimited.
    """
    if collective.hidden:
        return None
    distance_s = bound_s(collective, _infinitely_fast(collective, network), sharing=False)
    bytes_s = bound_s(collective, network, sharing=False)
    sharing_s = bound_s(collective, network)
    end, slow_end = (gloo_end(collective, network, some) for some in (None, windows))
    if None in (distance_s, bytes_s, sharing_s, end, slow_end):
        return None
    assert distance_s is not None and bytes_s is not None and sharing_s is not None
    assert end is not None and slow_end is not None
    came = [part.entered for part in collective.all_parts]
    took_s = max(part.ended for part in collective.parts) - collective.complete_at
    gloo_s = max(sharing_s, end - collective.complete_at)
    window_s = max(gloo_s, slow_end - collective.complete_at)
    loss_s = max(window_s, min(took_s, window_s + _most_lost_s(collective)))
    until = [max(came) - min(came), distance_s, bytes_s, sharing_s, gloo_s, window_s, loss_s]
    parts = [until[0], until[1], *(b - a for a, b in zip(until[1:], until[2:], strict=False))]
    return dict(zip(PARTS, [*parts, took_s - loss_s], strict=True))


def _most_lost_s(collective: Collective) -> float:
    """Return the longest that one connection can have waited for its retransmissions: one timeout each."""
    flows = [part.tcp[peer] for part, peer in flows_of(collective) if peer in part.tcp]
    return max((state.sent_again * state.rto_s for state in flows), default=0.0)


def _infinitely_fast(collective: Collective, network: Network) -> Network:
    """Return the network with only the routes that it uses, without their rates."""
    used = {(part.rank, peer) for part, peer in flows_of(collective)} & network.routes.keys()
    routes = {pair: replace(network.routes[pair], byte_s=math.inf) for pair in used}
    return replace(network, routes=routes)


@dataclass(frozen=True)
class Attribution:
    """The attribution of all collectives of one kind, purpose and size.

    Attributes:
        key: kind, purpose and size.
        count: the number of collectives with a known end; each rank's part of an exchange is one.
        replayed: the number of them whose parts are known.
        seconds: by part; of exchanges divided by the number of ranks that make any of this kind and purpose, so that
            those of all sizes add up to the mean over ranks.
    """

    key: tuple[str, str, int]
    count: int
    replayed: int
    seconds: Seconds


def attribute_run(
    collectives: Sequence[Collective], network: Network | None, *, slow_start: bool = False
) -> dict[str, Any] | None:
    """Return `attribution` of summary.json; None if nothing can be said.

    Args:
        collectives: of the run.
        network: links; None if they are unknown.
        slow_start: whether an idle connection restarts with slow start.

    Returns:
        {"seconds": {part: seconds}, "share": {part: of all but skew}, "collectives": [the same by kind, purpose, size]}
    """
    if network is None:
        return None
    known = network
    windows = windows_of_run(collectives, network, slow_start=slow_start)

    def replay(one: Collective) -> Seconds | None:
        return attribute(one, known, windows(one))

    rows = _by_key(collectives, replay)
    if not rows:
        return None
    rows.sort(key=lambda row: -sum(row.seconds.values()))
    total = {part: sum(row.seconds[part] for row in rows) for part in PARTS}
    return {
        "seconds": _rounded(total),
        "share": shares(total),
        "collectives": [
            dict(zip(("kind", "purpose", "bytes"), row.key, strict=True))
            | {"count": row.count, "replayed": row.replayed}
            | {"seconds": _rounded(row.seconds), "share": shares(row.seconds)}
            for row in rows
        ],
    }


def shares(seconds: Mapping[str, float]) -> Seconds:
    """Return each part's share of the transfer, which is everything except skew."""
    total_s = transfer_s(seconds)
    parts = (part for part in PARTS if part != "skew")
    return {part: round(seconds[part] / total_s, 4) if total_s > 0 else 0.0 for part in parts}


def transfer_s(seconds: Mapping[str, float]) -> float:
    """Return the seconds after all ranks had arrived."""
    return sum(value for part, value in seconds.items() if part != "skew")


def _by_key(collectives: Iterable[Collective], replay: Replay) -> list[Attribution]:
    """Return the attribution of each kind, purpose and size of which anything could be replayed."""
    groups = by_key(one for one in collectives if not one.hidden)
    each = MOST_STEPS // max(1, len(groups))
    rows = [_of_group(key, group, replay, each) for key, group in groups.items()]
    known = [row for row in rows if row.replayed]
    at_once = _made_at_once(one for row in known for one in groups[row.key])
    return [_divided(row, at_once.get(row.key[:2], 1)) for row in known]


def _of_group(
    key: tuple[str, str, int],
    group: Sequence[Collective],
    replay: Replay,
    most_steps: int,
) -> Attribution:
    """Replay as many evenly spaced collectives as the budget allows; none if one alone exceeds it.

    Of exchanges, the seconds are those of all ranks together.
    """
    steps = REPLAYS * max(one.replay_steps for one in group)
    most = most_steps // max(1, steps)
    stride = -(-len(group) // most) if most else len(group)
    replayed = group[::stride] if most else ()
    found = [parts for parts in map(replay, replayed) if parts]
    scale = len(group) / len(found) if found else 0.0
    seconds = {part: scale * sum(one[part] for one in found) for part in PARTS}
    return Attribution(key, len(group), len(found), seconds)


def _made_at_once(collectives: Iterable[Collective]) -> dict[tuple[str, str], int]:
    """Return how many exchanges of a kind and purpose ranks make at the same time: each rank's part is one.

    Whatever their sizes: an exchange is as large as what its rank sends, which differs with its neighbours.
    """
    ranks: dict[tuple[str, str], set[int]] = {}
    for part in (one.parts[0] for one in collectives):
        if part.kind == "exchange":
            ranks.setdefault((part.kind, part.purpose), set()).add(part.rank)
    return {what: len(own) for what, own in ranks.items()}


def _divided(row: Attribution, by: int) -> Attribution:
    return replace(row, seconds={part: s / by for part, s in row.seconds.items()})


def _rounded(seconds: Mapping[str, float]) -> Seconds:
    return {part: round(value, 4) for part, value in seconds.items()}
