"""What would have helped: seconds of collectives that one better link would have saved, predicted. Pure.

Each change is of one link, uplink or downlink: twice its rate, or half its delay. The collectives are reckoned again as
gloo makes them (gloo_timing.py), and at least as long as the bound. To that comes what TCP's windows add
(tcp_timing.py): what waits for a window waits in round trips, so less delay saves more than what a message takes, by
windows as they were; with more rate it stays, since windows grow with the rate. Of it as much counts as was measured,
since the model's is an upper limit. What else took time stays.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.accounting.bounds import Network, bound_s, flows_of
from cluster.accounting.collectives import Collective, by_key, made_at_once
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.tcp_timing import Windows
from cluster.accounting.tcp_windows import windows_of_run

MOST_STEPS = 1_000_000  # messages of all ranks that are reckoned with: some seconds
MOST_SAMPLES = 8  # of a kind, purpose and size
MOST_TOLD = 5
LEAST_S = 1e-3
REPLAYS = 3  # of a collective, a change


@dataclass(frozen=True)
class Change:
    """One thing made better.

    Attributes:
        what: rate (twice) or delay (half).
        carrier: of a link, an uplink or a downlink.
    """

    what: str
    carrier: str


@dataclass(frozen=True)
class Sample:
    """Some collectives that stand for all of a kind, purpose and size.

    Attributes:
        collectives: those.
        each: for how many each of them stands.
        windows: of TCP, as each of them began; empty: as large as they must be.
        window_share: how much of what these add was measured, 0 to 1.
    """

    collectives: Sequence[Collective]
    each: float
    windows: Sequence[Windows] = ()
    window_share: float = 0.0


def what_if(
    collectives: Sequence[Collective], network: Network | None, *, slow_start: bool = False
) -> list[dict[str, Any]]:
    """`what_if` of summary.json: {"what", "carrier", "saves_s"}, what saves most first; those that save anything.

    Args:
        collectives: of the run.
        network: links; None where nothing is known of them.
        slow_start: whether a connection that was idle begins as a new one.
    """
    if network is None:
        return []
    samples = take_samples(collectives)
    if not samples:
        return []
    changes = better_links(samples, network)
    if count_steps(samples) * REPLAYS * (1 + len(changes)) > MOST_STEPS:
        return []
    windows_of = windows_of_run(collectives, network, slow_start=slow_start)
    samples = [with_windows(one, network, windows_of) for one in samples]
    best = savings(samples, network, changes)[:MOST_TOLD]
    return [
        {"what": change.what, "carrier": change.carrier, "saves_s": round(s, 3)}
        for change, s in best
        if s > LEAST_S
    ]


def savings(
    samples: Sequence[Sample], network: Network, changes: Iterable[Change]
) -> list[tuple[Change, float]]:
    """Seconds that each change saves, the most first."""
    saved = [(one, _saved_s(samples, network, one)) for one in changes]
    return sorted(saved, key=lambda item: -item[1])


def _saved_s(samples: Sequence[Sample], network: Network, change: Change) -> float:
    some = without_windows(samples) if change.what == "rate" else samples
    return samples_s(some, network) - samples_s(some, improve(network, change))


def without_windows(samples: Iterable[Sample]) -> list[Sample]:
    """Where windows would be others, so that nothing is known of what they add."""
    return [replace(sample, windows=(), window_share=0.0) for sample in samples]


def count_steps(samples: Iterable[Sample]) -> int:
    """Messages of all ranks that one replay reckons with."""
    return sum(part.messages for s in samples for one in s.collectives for part in one.parts)


def improve(network: Network, change: Change) -> Network:
    """The network with one thing better."""
    name = change.carrier
    if change.what == "delay":
        less_s = network.delay_s[name] / 2
        routes = {
            pair: replace(r, delay_s=r.delay_s - less_s) if name in r.carriers else r
            for pair, r in network.routes.items()
        }
        return replace(network, routes=routes)
    byte_s = {**network.byte_s, name: 2 * network.byte_s[name]}
    routes = {
        pair: replace(r, byte_s=min(byte_s[one] for one in r.carriers)) if name in r.carriers else r
        for pair, r in network.routes.items()
    }
    return replace(network, routes=routes, byte_s=byte_s)


def take_samples(collectives: Iterable[Collective], most: int = MOST_SAMPLES) -> list[Sample]:
    """Evenly spread ones of each kind, purpose and size; of exchanges each rank's part is one of as many."""
    timed = (one for one in collectives if not one.hidden and not one.tests)
    samples = []
    for group in by_key(timed).values():
        some = group[:: -(-len(group) // most)]
        each = len(group) / made_at_once(group) / len(some)
        samples.append(Sample(some, each))
    return samples


def with_windows(
    sample: Sample, network: Network, windows_of: Callable[[Collective], Windows]
) -> Sample:
    """A sample of which it is known what TCP's windows were, and so how much of its time they explain.

    Args:
        sample: as taken.
        network: as it was.
        windows_of: tells the windows as a collective began.
    """
    windows = [windows_of(one) for one in sample.collectives]
    pairs = list(zip(sample.collectives, windows, strict=True))
    gloo_s = sum(_gloo_s(one, network, {}) for one in sample.collectives)
    added_s = sum(_gloo_s(one, network, own) for one, own in pairs) - gloo_s
    took_s = sum(max(p.ended for p in one.parts) - one.complete_at for one in sample.collectives)
    share = min(1.0, max(0.0, (took_s - gloo_s) / added_s)) if added_s > 0 else 0.0
    return replace(sample, windows=windows, window_share=share)


def better_links(samples: Iterable[Sample], network: Network) -> list[Change]:
    """Of all that carries something, there or back: gloo's asking for room goes the other way."""
    flows = {
        pair
        for sample in samples
        for one in sample.collectives
        for part, peer in flows_of(one)
        for pair in ((part.rank, peer), (peer, part.rank))
    }
    used = dict.fromkeys(
        name
        for pair in sorted(flows & network.routes.keys())
        for name in network.routes[pair].carriers
    )
    rates = [Change("rate", name) for name in used]
    return rates + [Change("delay", name) for name in used if network.delay_s.get(name)]


def samples_s(samples: Iterable[Sample], network: Network) -> float:
    """Of all for which they stand, as gloo makes them."""
    return sum(sample.each * _sample_s(sample, network) for sample in samples)


def _sample_s(sample: Sample, network: Network) -> float:
    gloo_s = sum(_gloo_s(one, network, {}) for one in sample.collectives)
    if not sample.window_share:
        return gloo_s
    pairs = zip(sample.collectives, sample.windows, strict=True)
    slow_s = sum(_gloo_s(one, network, windows) for one, windows in pairs)
    return gloo_s + sample.window_share * (slow_s - gloo_s)


def _gloo_s(one: Collective, network: Network, windows: Windows) -> float:
    bound, end = bound_s(one, network), gloo_end(one, network, windows)
    return 0.0 if bound is None or end is None else max(bound, end - one.complete_at)


def sentence(changes: Sequence[Mapping[str, Any]]) -> str:
    """For readers: the first of them; empty where nothing would help."""
    if not changes:
        return ""
    best = changes[0]
    how = "twice the rate" if best["what"] == "rate" else "half the delay"
    return f"{how} of {best['carrier']} would save {best['saves_s']:.1f} s of that"
