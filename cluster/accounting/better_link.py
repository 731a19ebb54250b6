"""What would have helped: the predicted seconds by which one better link would have made a run shorter. Pure.

Each change is of one link, uplink or downlink: twice its rate, or half its delay. The collectives are predicted on the
changed links (transfer_model.py), and the run is replayed with collectives that are quicker by the difference
(run_replay.py). All other time stays as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective
from cluster.accounting.run_replay import Quicker, RunReplay
from cluster.accounting.tcp_windows import windows_of_run
from cluster.accounting.transfer_model import (
    TransferModel,
    affordable_samples,
    carriers_in_use,
    with_windows,
)

MOST_STEPS = 1_000_000  # messages of all ranks in replays: some seconds
MOST_TOLD = 5
LEAST_S = 1e-3


@dataclass(frozen=True)
class Change:
    """One improvement.

    Attributes:
        what: rate (twice) or delay (half).
        carrier: the link, uplink or downlink.
    """

    what: str
    carrier: str


def what_if(
    collectives: Sequence[Collective], network: Network | None, *, slow_start: bool = False
) -> list[dict[str, object]] | None:
    """Return `what_if` of summary.json: {"what", "carrier", "saves_s"}, largest saving first; those that save anything.

    Args:
        collectives: of the run.
        network: links; None if they are unknown.
        slow_start: whether an idle connection restarts with slow start.

    Returns:
        None if nothing was predicted: the links are unknown, or the collectives are too many or too large.
    """
    if network is None:
        return None
    found = affordable_changes(collectives, network, MOST_STEPS, slow_start=slow_start)
    if found is None:
        return None
    model, options = found
    best = RunReplay(collectives, model.seconds).largest(options, MOST_TOLD)
    return [
        {"what": change.what, "carrier": change.carrier, "saves_s": round(s, 3)}
        for change, s in best
        if s > LEAST_S
    ]


def affordable_changes(
    collectives: Sequence[Collective], network: Network, most_steps: int, *, slow_start: bool
) -> tuple[TransferModel, dict[Change, Quicker]] | None:
    """Return a model of a run, and what better links make quicker: as many as can be replayed, the likeliest first.

    Args:
        collectives: of the run.
        network: links.
        most_steps: messages of all ranks in replays.
        slow_start: whether an idle connection restarts with slow start.

    Returns:
        None if not even one can be replayed.
    """
    changes = _likely_changes(collectives, network)
    carriers = [one.carrier for one in changes]
    taken, count = affordable_samples(collectives, network, carriers, most_steps)
    if changes and not count:
        return None
    windows_of = windows_of_run(collectives, network, slow_start=slow_start)
    model = TransferModel([with_windows(one, network, windows_of) for one in taken], network)
    return model, {
        one: model.quicker_on(improve(network, one), one.carrier) for one in changes[:count]
    }


def _likely_changes(collectives: Sequence[Collective], network: Network) -> list[Change]:
    """Return the changes of carriers in use, the most promising first: those of slow carriers and long links."""
    used = carriers_in_use(collectives, network)
    by_rate = sorted(used, key=lambda name: network.byte_s[name])
    delayed = [name for name in used if network.delay_s.get(name)]
    by_delay = sorted(delayed, key=lambda name: -network.delay_s[name])
    pairs = zip_longest(
        (Change("rate", name) for name in by_rate), (Change("delay", name) for name in by_delay)
    )
    return [change for pair in pairs for change in pair if change is not None]


def improve(network: Network, change: Change) -> Network:
    """Return the network with one improvement."""
    name = change.carrier
    if change.what == "delay":
        return with_delay(network, name, network.delay_s[name] / 2)
    return with_rate(network, name, 2 * network.byte_s[name])


def with_rate(network: Network, name: str, byte_s: float) -> Network:
    """Return the network with another rate of one carrier, in payload bytes a second."""
    rates = {**network.byte_s, name: byte_s}
    routes = {
        pair: replace(r, byte_s=min(rates[one] for one in r.carriers)) if name in r.carriers else r
        for pair, r in network.routes.items()
    }
    return replace(network, routes=routes, byte_s=rates)


def with_delay(network: Network, name: str, delay_s: float) -> Network:
    """Return the network with another delay of one link."""
    less_s = network.delay_s[name] - delay_s
    routes = {
        pair: replace(r, delay_s=r.delay_s - less_s) if name in r.carriers else r
        for pair, r in network.routes.items()
    }
    return replace(network, routes=routes, delay_s={**network.delay_s, name: delay_s})


def sentence(changes: Sequence[Mapping[str, object]]) -> str:
    """Return a sentence for the user with the first change; '' if nothing would help."""
    if not changes:
        return ""
    best = changes[0]
    how = "twice the rate" if best["what"] == "rate" else "half the delay"
    return f"{how} of {best['carrier']} would save {best['saves_s']:.1f} s of that"
