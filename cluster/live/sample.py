"""One line of a node's telemetry, checked: a node may say anything. Pure."""

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
    """What a node says of one of its ranks.

    Attributes:
        state: of its processes as ps(1) calls it; '?' where there are none.
        cpu_s: processor time of all its processes.
        main_s: of the thread that runs the program.
        collective: None for programs that do not tell.
        step: the last one that it told of; None: none yet. `loss` likewise.
        score: the name and the value of its last test, or None.
        compute_s, comm_s: sums over its steps; None of programs without metrics.
        began, told: the times of its first and of its last line of metrics, Unix time.
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
    """What one node says at one moment.

    Attributes:
        time: by its own clock, Unix time.
        ranks: by number.
        links: those that start here, by peer.
        spent_s: processor time of the telemetry itself.
    """

    time: float
    ranks: Mapping[int, RankSample] = field(default_factory=dict)
    links: Mapping[str, LinkLook] = field(default_factory=dict)
    spent_s: float = 0.0


def parse_sample(
    text: str | bytes, ranks: Collection[int], peers: Collection[str]
) -> Sample | None:
    """A line of telemetry; None where it is none. What is wrong of one rank or link is left out.

    Args:
        text: the line.
        ranks: those of this node: it has no word on others.
        peers: where its links lead to.
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
