"""What a learner and its actors did: bytes by purpose, staleness, and the predicted age of weights. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.broadcast import (
    LEARNER,
    Receipt,
    arrivals_s,
    broadcast_summary,
    cycles_s,
    parents_and_size,
)
from cluster.accounting.metrics import LastLines
from protocol.metrics import End, LearnerFigures

# Copied from the learner's last line.
FIGURES = (
    *("env_steps", "pieces", "rejected", "mean_steps", "mean_steps_kept", "replay_ratio"),
    *("duplicates", "malformed", "updates_s", "changed"),
    *("staleness_updates", "staleness_s", "weights_age_s"),
)


class SharedCarrier(NamedTuple):
    """A carrier that the answers to several actors share: the learner's uplink, say.

    Attributes:
        byte_s: payload bytes a second.
        actors: how many actors' routes it is on.
    """

    byte_s: float
    actors: int


def experience_summary(
    told: Mapping[str, LastLines],
    network: Network | None,
    receipts: Mapping[int, Mapping[int, Receipt]] | None = None,
) -> dict[str, object] | None:
    """Return `experience` of summary.json; None if no learner reached its end.

    Args:
        told: rank name -> its last lines; in rank order.
        network: routes between the ranks; None if unknown.
        receipts: version -> rank -> the arrival of its weights, if each version is broadcast to all.
    """
    names = list(told)
    end = told[names[LEARNER]].end
    learner = end.experience if end else None
    if learner is None:
        return None
    summary = {name: getattr(learner, name) for name in FIGURES}
    of_actors = {rank: own for rank, own in learner.actors.items() if rank < len(names)}
    ways = _ways_s(receipts, network) if receipts and network else {}
    actors = {
        names[rank]: _actor(rank, figures, learner, network, ways.get(rank))
        for rank, figures in of_actors.items()
    }
    broadcast = broadcast_summary(receipts, of_actors, network) if receipts else None
    return summary | {
        "rejected_share": round(learner.rejected / learner.pieces, 4) if learner.pieces else None,
        "bytes": _bytes_by_purpose([lines.end for lines in told.values() if lines.end]),
        "broadcast": broadcast and {"topology": learner.broadcast, **broadcast},
        "actors": actors,
    }


def predicted_age_s(
    there: RankRoute,
    back: RankRoute,
    *,
    weights_bytes: float,
    pull_interval_s: float,
    publish_interval_s: float,
    update_s: float,
    window_full_share: float = 0.0,
    shared: Sequence[SharedCarrier] = (),
) -> float:
    """Return the predicted mean age of an actor's weights when it acts.

    The learner handles messages between updates, so the weights that it sends are up to a publish interval minus an
    update old. They travel, and are used until the next ones have arrived: on average half of that time more. An actor
    asks once per interval of its own, and not again before it has an answer. Answers to other actors that share a
    carrier delay it (`shared_answer_s`); queueing behind other messages is not included.

    An actor whose window is full stands still until the learner acknowledges pieces. Acknowledgements wait behind the
    weights on their way to it, so it stands still before weights arrive, and uses those that it has for less time.

    Args:
        there: from the actor to the learner.
        back: from the learner to the actor.
        weights_bytes: of an answer.
        pull_interval_s: between an actor's requests.
        publish_interval_s: between versions.
        update_s: the duration of one update of the learner.
        window_full_share: the share of its time in which an actor stands still because its window is full.
        shared: the carriers on the way back that answers to other actors use, too.
    """
    sending_s = [
        shared_answer_s(weights_bytes / one.byte_s, one.actors, pull_interval_s) for one in shared
    ]
    travel_s = back.delay_s + max([weights_bytes / back.byte_s, *sending_s])
    answer_s = there.delay_s + update_s / 2 + travel_s
    cycle_s = max(pull_interval_s, answer_s)
    still_s = min(window_full_share * cycle_s, travel_s)
    return (publish_interval_s - update_s) / 2 + travel_s + (cycle_s - still_s) / 2


def shared_answer_s(alone_s: float, actors: int, interval_s: float) -> float:
    """Return the mean time that a carrier takes for an answer, if it serves all answers under way equally fast.

    All answers together take `actors` x `alone_s`. If that is no less than the interval between an actor's requests,
    the carrier never rests: each actor waits for an answer all the time, and has one per `actors` x `alone_s`.

    Otherwise fewer overlap. An answer begins beside those that are under way, and then takes as many times longer. On
    average these are as many as if only the other actors were there (mean value analysis: Reiser and Lavenberg, 1980):
    each has an answer under way for that answer's time out of each interval. So the time follows from that with one
    actor fewer, and with one actor it is `alone_s`. This takes requests to be independent of each other: actors that
    always ask at the same moment wait for `actors` x `alone_s`.

    Args:
        alone_s: the time for one answer alone: bytes / rate.
        actors: how many actors share the carrier.
        interval_s: between an actor's requests.
    """
    if actors * alone_s >= interval_s:
        return actors * alone_s
    answer_s = alone_s
    for others in range(1, actors):
        answer_s = alone_s * (1 + others * answer_s / interval_s)
    return answer_s


def predicted_broadcast_age_s(travel_s: float, cycle_s: float, publish_interval_s: float) -> float:
    """Return the predicted mean age of weights when they are used, if versions are broadcast.

    A version is as old as its travel time when it arrives, and is used until the next one has arrived. If a hop takes
    longer than a publish interval, the version that it takes next is already half an interval old on average.

    Args:
        travel_s: from the learner until all of it has arrived.
        cycle_s: how soon after a version the next one can follow: the slowest hop.
        publish_interval_s: between versions.
    """
    waits_s = publish_interval_s / 2 if cycle_s > publish_interval_s else 0.0
    return waits_s + travel_s + max(publish_interval_s, cycle_s) / 2


def _ways_s(
    receipts: Mapping[int, Mapping[int, Receipt]], network: Network
) -> dict[int, tuple[float, float]]:
    """Return each rank's least travel time of a version, and its slowest hop, on the routes of the latest version."""
    last = {rank: one for _, of in sorted(receipts.items()) for rank, one in of.items()}
    way = *parents_and_size(last), network
    arrivals = arrivals_s(*way)
    cycles = cycles_s(*way) if arrivals else {}
    return {rank: (travel_s, cycles[rank]) for rank, travel_s in arrivals.items()}


def _actor(
    rank: int,
    figures: Mapping[str, float],
    learner: LearnerFigures,
    network: Network | None,
    way_s: tuple[float, float] | None,
) -> dict[str, object]:
    """Return the learner's figures of one actor process, with the predicted age of its weights."""
    predicted = None
    if way_s is not None and learner.updates_s:
        interval_s = learner.publish_every / learner.updates_s
        predicted = predicted_broadcast_age_s(*way_s, interval_s)
    elif network and learner.pull_every:
        predicted = _predict(rank, figures, learner, network)
    measured = figures.get("weights_age_s")
    ratio = round(predicted / measured, 4) if predicted and measured else None
    return dict(figures) | {
        "predicted_weights_age_s": None if predicted is None else round(predicted, 4),
        "predicted_over_measured": ratio,
    }


def _predict(
    rank: int, figures: Mapping[str, float], learner: LearnerFigures, network: Network
) -> float | None:
    routes = network.routes.get((rank, LEARNER)), network.routes.get((LEARNER, rank))
    known = ("pulled_bytes", "step_interval_s")
    if None in routes or any(name not in figures for name in known) or not learner.updates_s:
        return None
    there, back = routes
    assert there is not None and back is not None
    update_s = 1 / learner.updates_s
    return predicted_age_s(
        there,
        back,
        weights_bytes=figures["pulled_bytes"],
        pull_interval_s=learner.pull_every * figures["step_interval_s"],
        publish_interval_s=learner.publish_every * update_s,
        update_s=update_s,
        window_full_share=min(1.0, max(0.0, figures.get("window_full_share", 0.0))),
        shared=_shared(back, learner, network),
    )


def _shared(back: RankRoute, learner: LearnerFigures, network: Network) -> list[SharedCarrier]:
    """Return the carriers of a route from the learner that are on its routes to other actors, too."""
    routes = [network.routes.get((LEARNER, rank)) for rank in learner.actors]
    used = [name for route in routes if route for name in route.carriers]
    return [
        SharedCarrier(network.byte_s[name], used.count(name))
        for name in back.carriers
        if used.count(name) > 1
    ]


def _bytes_by_purpose(ends: list[End]) -> dict[str, int]:
    """Return the bytes of all ranks by purpose: weights, experience, control."""
    total: dict[str, int] = {}
    for end in ends:
        for one in end.collectives:
            count = sum(of.bytes for of in one.to.values())
            total[one.purpose] = total.get(one.purpose, 0) + count
    return total
