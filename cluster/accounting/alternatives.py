"""Single changes of a run, and the seconds that each is predicted to have saved. Pure.

    rate         a link, an uplink or a downlink twice as fast (better_link.py)
    delay        a link with half its delay
    rank_order   the node order in which the run's costliest all-reduce is quickest (ring_order.py)
    window       no slow start after pauses: time measured beyond gloo's model, up to what TCP's window explains
    codec        bf16 between ranks, for strategies that support it: all-reduces of half the bytes
    loss         no loss on a link; not predicted, as no model here includes lost packets

Each change makes some collectives quicker, and the run is replayed with these (run_replay.py): ranks compute as they
did, and wait less for data, or for others.

int8 is left out because it uses other collectives (an all-to-all and an all-gather), and so is every other strategy:
what each sends depends on how it learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.accounting.better_link import LEAST_S, affordable_changes
from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective
from cluster.accounting.ring_order import best_order, ring_messages
from cluster.accounting.run_replay import Quicker, RunReplay, transfers_of
from cluster.accounting.tcp_windows import windows_of_run
from cluster.accounting.transfer_model import (
    Sample,
    TransferModel,
    seconds_of,
    used_carriers,
)
from protocol.link import Link

MOST_STEPS = 5_000_000  # messages of all ranks in replays: about ten seconds
MOST_TOLD = 24
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
    saves_s: float | None = None
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
    found = affordable_changes(run.collectives, run.network, MOST_STEPS, slow_start=run.slow_start)
    if found is None:
        return None
    model, links = found
    options = {
        **{Alternative(one.what, one.carrier): quicker for one, quicker in links.items()},
        **_rank_order(run, model),
        **_window(run, model),
        **_codec(run, model),
    }
    best = RunReplay(run.collectives, model.seconds).largest(options, MOST_TOLD)
    useful = [replace(change, saves_s=s) for change, s in best if s > LEAST_S]
    return [*useful, *_losses(run, model)]


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


def _rank_order(run: Recorded, model: TransferModel) -> dict[Alternative, Quicker]:
    """Return what the best order for the all-reduce that takes most time makes quicker."""
    rings = [s for s in model.samples if s.collectives[0].key[0] == "all_reduce"]
    if not rings or len(run.nodes) < 3:
        return {}
    largest = max(rings, key=lambda sample: _all_s(sample, run.network))
    each, size = run.ranks_a_node, len(run.nodes)
    routes = {
        (a, b): run.network.routes[a * each, b * each]
        for a in range(size)
        for b in range(size)
        if (a * each, b * each) in run.network.routes
    }
    between = replace(run.network, routes=routes)
    found = best_order(between, size, largest.collectives[0].key[2], each)
    then = reorder(run.network, found.order, each)
    if found.order == tuple(range(size)) or not _all_reached(model.samples, run.network, then):
        return {}
    order = ",".join(run.nodes[n] for n in found.order)
    note = "" if found.is_proved else "a better order was not ruled out"
    return {Alternative("rank_order", order, note=note): model.quicker_on(then)}


def _all_s(sample: Sample, network: Network) -> float:
    """Return the seconds of all collectives that a sample stands for."""
    each = zip(seconds_of(sample, network), sample.stands_for, strict=True)
    return sum(max(seconds.values()) * len(alike) for seconds, alike in each)


def _all_reached(samples: Sequence[Sample], network: Network, then: Network) -> bool:
    """Return whether ranks still reach all others that they have to: with few links, some may not."""
    return not any(_all_s(one, then) == 0 < _all_s(one, network) for one in samples)


def _window(run: Recorded, model: TransferModel) -> dict[Alternative, Quicker]:
    """Return what windows that no pause shrinks make quicker."""
    if not run.slow_start:
        return {}
    windows_of = windows_of_run(run.collectives, run.network, slow_start=False)
    change = Alternative("window", "all links", note=NODES_ANEW, can_be_tried=False)
    return {change: model.quicker_with(windows_of)}


def _codec(run: Recorded, model: TransferModel) -> dict[Alternative, Quicker]:
    """Return what half the bytes make quicker, if the strategy supports a codec and uses none."""
    options = run.training.get("strategy_options")
    chosen = options.get("codec") if isinstance(options, dict) else None
    if run.training.get("strategy") not in HALVED or chosen != "none":
        return {}
    small = [
        replace(one, collectives=[_halved(c) for c in one.collectives]) for one in model.samples
    ]
    note = "sends other bytes: the model learns by rounded averages"
    return {Alternative("codec", "bf16", note=note): model.quicker_as(small)}


def _halved(one: Collective) -> Collective:
    if one.key[:2] != ("all_reduce", "train"):
        return one
    parts = [
        replace(
            part,
            size=part.size // 2,
            to={peer: count // 2 for peer, count in part.to.items()},
            messages=min(part.messages, ring_messages(len(one.parts), part.size // 2)),
        )
        for part in one.parts
    ]
    return Collective(tuple(parts), one.others)


def _losses(run: Recorded, model: TransferModel) -> list[Alternative]:
    """Return lossy links that carried something; their saving is not predicted."""
    used = used_carriers(model.samples)
    names = [f"{link.src}->{link.dst}" for link in run.links if link.loss_pct]
    return [Alternative("loss", name, None, NO_LOSS_MODEL) for name in names if name in used]


def collectives_s(collectives: Sequence[Collective]) -> float:
    """Return the seconds by which a run would have been shorter if its collectives had taken none.

    Of these, those of tests are left out, and what ranks wait for one another.
    """
    whole = {
        transfer: max(part.ended for part in one.parts) - one.complete_at
        for one in collectives
        if not one.hidden and not one.tests
        for transfer in transfers_of(one)
    }
    return RunReplay(collectives).saved_s(Quicker(whole))
