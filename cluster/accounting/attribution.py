"""Attribution: where the time of collectives went, in parts that add up to what was measured. Pure.

Each part is what is added when one more thing is made real, always in this order:

    skew         waiting for the last rank: from when the first came until all were there
    distance     the delay of links, as if they were infinitely fast
    bytes        their rates, each transfer as if it were alone
    sharing      what several transfers take together: a link, an uplink, a downlink
    algorithm    gloo's way: it asks for room for each message (gloo_timing.py)
    window       TCP's, if it is as small after a pause as that of a new connection: an upper limit (tcp_timing.py)
    unexplained  what was measured beyond that: lost packets, a busy host; less than nothing where it was quicker than
                 the model

The second to the fourth are the lower bound (bounds.py). The order matters: what two things take together counts as
the earlier's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.accounting.bounds import Network, bound_s
from cluster.accounting.collectives import Collective
from cluster.accounting.gloo_timing import gloo_end

PARTS = ("skew", "distance", "bytes", "sharing", "algorithm", "window", "unexplained")
MOST_STEPS = 1_000_000  # messages of all ranks that are replayed: some seconds
REPLAYS = 5  # of each collective
Seconds = dict[str, float]


def attribute(collective: Collective, network: Network, paused_s: float = 0.0) -> Seconds | None:
    """Seconds of one collective by part, from when the first rank came until the last was done.

    None where it is not known when it was done, or nothing is known of its links.

    Args:
        collective: what was done.
        network: links.
        paused_s: for how long nothing was sent before it, where TCP then begins slowly; else 0.
    """
    if collective.hidden:
        return None
    fast = replace(
        network,
        routes={pair: replace(r, byte_s=math.inf) for pair, r in network.routes.items()},
    )
    distance_s = bound_s(collective, fast, sharing=False)
    bytes_s = bound_s(collective, network, sharing=False)
    sharing_s = bound_s(collective, network)
    end, slow_end = (gloo_end(collective, network, paused_s=s) for s in (0.0, paused_s))
    if None in (distance_s, bytes_s, sharing_s, end, slow_end):
        return None
    assert distance_s is not None and bytes_s is not None and sharing_s is not None
    assert end is not None and slow_end is not None
    came = [part.entered for part in (*collective.parts, *collective.others)]
    took_s = max(part.ended for part in collective.parts) - collective.complete_at
    gloo_s = max(sharing_s, end - collective.complete_at)
    window_s = max(gloo_s, slow_end - collective.complete_at)
    until = [max(came) - min(came), distance_s, bytes_s, sharing_s, gloo_s, window_s, took_s]
    parts = [until[0], until[1], *(b - a for a, b in zip(until[1:], until[2:], strict=False))]
    return dict(zip(PARTS, parts, strict=True))


@dataclass(frozen=True)
class Attribution:
    """Of all collectives of a kind, purpose and size.

    Attributes:
        key: those.
        count: how many there were whose end is known; of exchanges each rank's part is one.
        replayed: of how many of them the parts are known.
        seconds: by part, of all of them: of those that were not replayed as of those that were. Of exchanges, which
            ranks make at the same time, the mean over ranks.
    """

    key: tuple[str, str, int]
    count: int
    replayed: int
    seconds: Seconds


def attribute_run(
    collectives: Sequence[Collective], network: Network | None, *, slow_start: bool = False
) -> dict[str, Any] | None:
    """`attribution` of summary.json; None where nothing can be said.

    Args:
        collectives: of the run.
        network: links; None where nothing is known of them.
        slow_start: whether a connection that was idle begins as a new one.

    Returns:
        {"seconds": {part: seconds}, "share": {part: of all but skew}, "collectives": [the same by kind, purpose, size]}
    """
    if network is None:
        return None
    pauses_s = _pauses_s(collectives) if slow_start else {}
    rows = [one for one in _by_key(collectives, network, pauses_s) if one.replayed]
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
    """Of the transfer: of all that is not skew."""
    transfer_s = sum(value for part, value in seconds.items() if part != "skew")
    parts = (part for part in PARTS if part != "skew")
    return {part: round(seconds[part] / transfer_s, 4) if transfer_s > 0 else 0.0 for part in parts}


def _pauses_s(collectives: Iterable[Collective]) -> dict[int, float]:
    """By identity: for how long nothing was under way before a collective began."""
    pauses_s: dict[int, float] = {}
    busy_until = -math.inf
    for one in sorted(collectives, key=lambda one: min(part.entered for part in one.parts)):
        pauses_s[id(one)] = max(0.0, one.complete_at - busy_until)
        busy_until = max(busy_until, *(part.ended for part in one.parts))
    return pauses_s


def _by_key(
    collectives: Iterable[Collective], network: Network, pauses_s: Mapping[int, float]
) -> list[Attribution]:
    groups: dict[tuple[str, str, int], list[Collective]] = {}
    for one in collectives:
        if not one.hidden:
            groups.setdefault(one.key, []).append(one)
    each = MOST_STEPS // max(1, len(groups))
    return [_of_group(key, group, network, pauses_s, each) for key, group in groups.items()]


def _of_group(
    key: tuple[str, str, int],
    group: Sequence[Collective],
    network: Network,
    pauses_s: Mapping[int, float],
    most_steps: int,
) -> Attribution:
    """Evenly spread ones are replayed, as many as can be afforded: none of a few that are too large."""
    steps = REPLAYS * max(sum(part.messages for part in one.parts) for one in group)
    most = most_steps // max(1, steps)
    stride = -(-len(group) // most) if most else len(group)
    replayed = group[::stride] if most else ()
    replays = (attribute(one, network, pauses_s.get(id(one), 0.0)) for one in replayed)
    found = [parts for parts in replays if parts]
    at_once = len({one.parts[0].rank for one in group}) if key[0] == "exchange" else 1
    scale = len(group) / at_once / len(found) if found else 0.0
    seconds = {part: scale * sum(one[part] for one in found) for part in PARTS}
    return Attribution(key, len(group), len(found), seconds)


def _rounded(seconds: Mapping[str, float]) -> Seconds:
    return {part: round(value, 4) for part, value in seconds.items()}
