"""One line of a node's telemetry, validated: a node may send anything. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cluster.accounting.open_collective import OpenCollective, read_collective
from protocol.metrics import SCORES
from protocol.telemetry import LARGEST, LinkLook, RankLook, parse_look

NO_STATE = "?"


@dataclass(frozen=True)
class RankSample:
    """What a node reports about one of its ranks.

    Attributes:
        state: the state of its processes as in ps(1); '?' if there are none.
        cpu_s: CPU time of all its processes.
        main_s: CPU time of the thread that runs the program.
        collective: its progress in collectives; None for programs that do not report it.
        step: the last step that it reported; None before the first. `loss` likewise.
        score: name and value of its last test, or None.
        compute_s, comm_s: sums over its steps; None for programs without metrics.
        began, told: Unix times of its first and last line of metrics.
    """

    state: str = NO_STATE
    cpu_s: float = 0.0
    main_s: float = 0.0
    collective: OpenCollective | None = None
    step: int | None = None
    loss: float | None = None
    score: tuple[str, float] | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    began: float | None = None
    told: float | None = None


@dataclass(frozen=True)
class Sample:
    """What one node reports at one moment.

    Attributes:
        time: Unix time by the node's own clock.
        ranks: its ranks, by rank number.
        links: the links that start at the node, by peer.
        spent_s: CPU time of the telemetry itself.
    """

    time: float
    ranks: Mapping[int, RankSample] = field(default_factory=dict)
    links: Mapping[str, LinkLook] = field(default_factory=dict)
    spent_s: float = 0.0


def parse_sample(
    text: str | bytes, ranks: Collection[int], peers: Collection[str]
) -> Sample | None:
    """Parse a line of telemetry; return None if it is invalid. Invalid data of one rank or link is left out.

    Args:
        text: the line.
        ranks: the node's ranks; it cannot report on others.
        peers: the nodes that its links lead to.
    """
    look = parse_look(text, ranks, peers)
    if look is None:
        return None
    seen = {rank: _rank(one) for rank, one in look.ranks.items()}
    return Sample(look.time, seen, look.links, look.spent_s)


def _rank(look: RankLook) -> RankSample:
    return RankSample(
        state=look.state or NO_STATE,
        cpu_s=look.cpu_s or 0.0,
        main_s=look.main_s or 0.0,
        collective=_collective(look.collective or ""),
        step=look.step,
        loss=look.loss,
        score=(SCORES[look.score[0]], look.score[1]) if look.score else None,
        compute_s=look.compute_s,
        comm_s=look.comm_s,
        began=look.began,
        told=look.time,
    )


def _collective(note: str) -> OpenCollective | None:
    try:
        found = read_collective(note)
    except (ValueError, OverflowError):
        return None
    if found is None or not math.isfinite(found.began_at) or abs(found.begun) >= LARGEST:
        return None
    return found
