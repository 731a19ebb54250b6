"""Single changes of a run, and the seconds that each is predicted to have saved. Pure.

    rate         a link, an uplink or a downlink twice as fast (better_link.py)
    delay        a link with half its delay
    rank_order   the node order in which the run's costliest all-reduce is quickest (ring_order.py)
    window       no slow start after pauses: time measured beyond gloo's model, up to what TCP's window explains
    codec        bf16 between ranks, for strategies that support it: all-reduces of half the bytes
    loss         no loss on a link; not predicted, as no model here includes lost packets

Predictions cover the collectives that ranks waited for, each with the ranks' arrival times as they were, and no more of
each than they waited (gains.py). Knock-on savings, from later collectives that would begin earlier, are not included:
computing stays as it was.

int8 is left out because it uses other collectives (an all-to-all and an all-gather), and so is every other strategy:
what each sends depends on how it learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.accounting.attribution import attribute_run
from cluster.accounting.better_link import (
    LEAST_S,
    REPLAYS,
    Sample,
    better_links,
    count_steps,
    gained_s,
    samples_s,
    savings,
    seconds_of,
    take_samples,
    with_windows,
    without_windows,
)
from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective, by_key, made_at_once
from cluster.accounting.gains import Gains, most_gained_s
from cluster.accounting.ring_order import best_order, ring_messages
from cluster.accounting.tcp_windows import windows_of_run
from protocol.link import Link

MOST_STEPS = 5_000_000  # messages of all ranks in a replay: about ten seconds
SAMPLES = (8, 2, 1)  # per kind, purpose and size: the most that the budget allows
HALVED = ("diloco", "eager-diloco", "streaming-diloco")  # strategies whose averages support a codec
NO_LOSS_MODEL = "not predicted: no model here has lost packets"
NODES_ANEW = "not tried: the nodes would have to be recreated"


@dataclass(frozen=True)
class Alternative:
    """One change.

    Attributes:
        what: rate, delay, rank_order, window, codec or loss.
        of: what changes: node2->node1, node3 uplink, node1,node3,node2, bf16; for `window`: all links.
        saves_s: the predicted saving; None if it cannot be predicted.
        note: a remark for the user.
        can_be_tried: whether `cluster.whatif --try` can launch it.
    """

    what: str
    of: str
    saves_s: float | None
    note: str = ""
    can_be_tried: bool = True

    @property
    def words(self) -> str:
        """The change in words, for the user."""
        match self.what:
            case "rate":
                return f"{self.of} twice as fast"
            case "delay":
                return f"{self.of} half as long"
            case "rank_order":
                return f"rank order {self.of}"
            case "window":
                return "no slow start after pauses"
            case "codec":
                return f"{self.of} between ranks"
            case _:
                return f"no loss on {self.of}"


@dataclass(frozen=True)
class Recorded:
    """The data of a run that predictions need.

    Attributes:
        collectives: all that have a line in collectives.jsonl.
        network: between its ranks.
        links: in force.
        nodes: in rank order.
        ranks_a_node: the number of ranks on each node.
        slow_start: whether an idle connection restarts with slow start.
        training: its configuration, if its program is node.train.
    """

    collectives: Sequence[Collective]
    network: Network
    links: Sequence[Link]
    nodes: Sequence[str]
    ranks_a_node: int
    slow_start: bool
    training: Mapping[str, object]


def predict(run: Recorded) -> list[Alternative] | None:
    """Return the predicted changes, largest saving first, then the unpredictable ones; None if it takes too long."""
    gains = most_gained_s(run.collectives)
    samples = _affordable(run, gains)
    if samples is None:
        return None
    links = savings(samples, run.network, better_links(samples, run.network))
    found = [
        *(Alternative(change.what, change.carrier, s) for change, s in links),
        *_rank_order(run, without_windows(samples)),
        *_window(run, gains),
        *_codec(run, samples),
    ]
    useful = [one for one in found if one.saves_s is not None and one.saves_s > LEAST_S]
    useful.sort(key=lambda one: -(one.saves_s or 0.0))
    return [*useful, *_losses(run, samples)]


def reorder(network: Network, order: Sequence[int], ranks_a_node: int) -> Network:
    """Return the network between ranks after their nodes change places.

    Args:
        network: between the ranks as they were.
        order: nodes by their previous numbers: order[0] gets the first ranks.
        ranks_a_node: the number of consecutive ranks on each.
    """

    def before(rank: int) -> int:
        return order[rank // ranks_a_node] * ranks_a_node + rank % ranks_a_node

    ranks = range(len(order) * ranks_a_node)
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    routes = {
        (a, b): network.routes[before(a), before(b)]
        for a, b in pairs
        if (before(a), before(b)) in network.routes
    }
    return replace(network, routes=routes)


def _affordable(run: Recorded, gains: Gains) -> list[Sample] | None:
    windows_of = windows_of_run(run.collectives, run.network, slow_start=run.slow_start)
    for most in SAMPLES:
        samples = take_samples(run.collectives, gains, most)
        changes = better_links(samples, run.network)
        if count_steps(samples) * REPLAYS * (1 + len(changes)) <= MOST_STEPS:
            return [with_windows(one, run.network, windows_of) for one in samples]
    return None


def _rank_order(run: Recorded, samples: Sequence[Sample]) -> list[Alternative]:
    """Predict the best order for the all-reduce that takes most time; the saving is that of all samples."""
    rings = [s for s in samples if s.collectives[0].key[0] == "all_reduce"]
    if not rings or len(run.nodes) < 3:
        return []
    largest = max(rings, key=lambda sample: samples_s([sample], run.network))
    each, size = run.ranks_a_node, len(run.nodes)
    routes = {
        (a, b): run.network.routes[a * each, b * each]
        for a in range(size)
        for b in range(size)
        if (a * each, b * each) in run.network.routes
    }
    between = replace(run.network, routes=routes)
    found = best_order(between, size, largest.collectives[0].key[2], each)
    if found.order == tuple(range(size)):
        return []
    then = reorder(run.network, found.order, each)
    if any(samples_s([sample], then) == 0 < samples_s([sample], run.network) for sample in samples):
        return []  # with few links, some ranks would no longer reach others
    before, after = (seconds_of(samples, one) for one in (run.network, then))
    saves_s = gained_s(samples, before, after)
    note = "" if found.is_proved else "a better order was not ruled out"
    return [Alternative("rank_order", ",".join(run.nodes[n] for n in found.order), saves_s, note)]


def _window(run: Recorded, gains: Gains) -> list[Alternative]:
    """Predict windows that no pause shrinks, less the time by which a collective was quicker than its model."""
    timed = [one for one in run.collectives if not one.tests]
    now = attribute_run(timed, run.network, slow_start=run.slow_start)
    then = attribute_run(timed, run.network, slow_start=False)
    if not run.slow_start or now is None or then is None:
        return []
    less_s = {_key(row): row["seconds"]["window"] for row in then["collectives"]}
    most_s = _most_gained_s(timed, gains)
    saves_s = 0.0
    for row in now["collectives"]:
        key, seconds = _key(row), row["seconds"]
        quicker_s = seconds["window"] - less_s[key] + min(0.0, seconds["unexplained"])
        saves_s += max(0.0, min(quicker_s, most_s[key]))
    return [Alternative("window", "all links", saves_s, NODES_ANEW, can_be_tried=False)]


def _most_gained_s(collectives: Sequence[Collective], gains: Gains) -> dict[tuple[Any, ...], float]:
    """Return the most that the run can gain from all collectives of each kind, purpose and size."""
    groups = by_key(one for one in collectives if not one.hidden)
    return {
        key: sum(gains[id(one)] for one in group) / made_at_once(group)
        for key, group in groups.items()
    }


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["kind"], row["purpose"], row["bytes"]


def _codec(run: Recorded, samples: Sequence[Sample]) -> list[Alternative]:
    """Predict all-reduces of half the bytes, if the strategy supports a codec and uses none."""
    options = run.training.get("strategy_options")
    chosen = options.get("codec") if isinstance(options, dict) else None
    if run.training.get("strategy") not in HALVED or chosen != "none":
        return []
    halved = [
        replace(sample, collectives=[_halved(one) for one in sample.collectives])
        for sample in samples
    ]
    before, after = (seconds_of(some, run.network) for some in (samples, halved))
    saves_s = gained_s(samples, before, after)
    note = "sends other bytes: the model learns by rounded averages"
    return [Alternative("codec", "bf16", saves_s, note)]


def _halved(one: Collective) -> Collective:
    if one.key[:2] != ("all_reduce", "train"):
        return one
    parts = [
        replace(
            part,
            size=part.size // 2,
            to={peer: count // 2 for peer, count in part.to.items()},
            messages=ring_messages(len(one.parts), part.size // 2),
        )
        for part in one.parts
    ]
    return Collective(tuple(parts), one.others)


def _losses(run: Recorded, samples: Sequence[Sample]) -> list[Alternative]:
    """Return lossy links that carried something; their saving is not predicted."""
    used = {change.carrier for change in better_links(samples, run.network)}
    names = [f"{link.src}->{link.dst}" for link in run.links if link.loss_pct]
    return [Alternative("loss", name, None, NO_LOSS_MODEL) for name in names if name in used]


def collectives_s(collectives: Sequence[Collective]) -> float:
    """Return the seconds that ranks waited for collectives once all had arrived, without those of tests.

    The rank that waited longest counts; for exchanges, which ranks make at the same time, the mean over ranks.
    """
    timed = [one for one in collectives if not one.hidden and not one.tests]
    return sum(
        sum(max(map(one.transfer_s, one.parts)) for one in group) / made_at_once(group)
        for group in by_key(timed).values()
    )
