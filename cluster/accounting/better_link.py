"""What would have helped: the predicted seconds of collectives that one better link would have saved. Pure.

Each change is of one link, uplink or downlink: twice its rate, or half its delay. The collectives are computed again as
gloo makes them (gloo_timing.py), and take at least their bound. TCP's windows add to that (tcp_timing.py). Waiting for
a window takes round trips, so less delay saves more than the delays of the messages, with the windows as they were;
with more rate this waiting stays, since windows grow with the rate. It counts only as far as it was measured, since the
model's value is an upper limit. A collective behind which ranks compute saves no more than they waited for it
(gains.py). All other time stays as it was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.accounting.bounds import Network, bound_s, flows_of
from cluster.accounting.collectives import Collective, by_key, made_at_once
from cluster.accounting.gains import Gains, Limits, limits_of, most_gained_s
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.tcp_timing import Windows
from cluster.accounting.tcp_windows import windows_of_run

MOST_STEPS = 1_000_000  # messages of all ranks in a replay: some seconds
MOST_SAMPLES = 8  # per kind, purpose and size
MOST_TOLD = 5
LEAST_S = 1e-3
REPLAYS = 3  # per collective and change


@dataclass(frozen=True)
class Change:
    """One improvement.

    Attributes:
        what: rate (twice) or delay (half).
        carrier: the link, uplink or downlink.
    """

    what: str
    carrier: str


@dataclass(frozen=True)
class Sample:
    """Some collectives that stand for all of a kind, purpose and size.

    Attributes:
        collectives: the samples.
        each: the number of collectives that each of them stands for; all ranks' parts of one exchange count as one.
        limits: what the run can gain from those that each of them stands for, every part of an exchange by itself.
        at_once: the number of these that ranks make at the same time.
        windows: TCP's windows at the start of each; empty: unlimited.
        window_share: the measured share of the time that these add, 0 to 1.
    """

    collectives: Sequence[Collective]
    each: float
    limits: Sequence[Limits]
    at_once: int
    windows: Sequence[Windows] = ()
    window_share: float = 0.0

    def gained_s(self, quicker_s: Sequence[float]) -> float:
        """Return what the run gains if each sample, and all that it stands for, is quicker by so much."""
        gained = (own.gained_s(s) for own, s in zip(self.limits, quicker_s, strict=True))
        return sum(gained) / self.at_once


def what_if(
    collectives: Sequence[Collective], network: Network | None, *, slow_start: bool = False
) -> list[dict[str, object]]:
    """Return `what_if` of summary.json: {"what", "carrier", "saves_s"}, largest saving first; those that save anything.

    Args:
        collectives: of the run.
        network: links; None if they are unknown.
        slow_start: whether an idle connection restarts with slow start.
    """
    if network is None:
        return []
    samples = take_samples(collectives, most_gained_s(collectives))
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
    """Return the seconds that each change saves, largest first."""
    some = {"rate": without_windows(samples), "delay": samples}
    before = {what: seconds_of(own, network) for what, own in some.items()}
    saved = []
    for one in changes:
        after = seconds_of(some[one.what], improve(network, one))
        saved.append((one, gained_s(samples, before[one.what], after)))
    return sorted(saved, key=lambda item: -item[1])


def gained_s(
    samples: Sequence[Sample], before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> float:
    """Return the seconds by which the run would have been shorter.

    Args:
        samples: of its collectives.
        before: the seconds of each, from `seconds_of`.
        after: the same with a change.
    """
    return sum(
        sample.gained_s([a - b for a, b in zip(was, then, strict=True)])
        for sample, was, then in zip(samples, before, after, strict=True)
    )


def without_windows(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples without windows, for changes that would alter the windows in unknown ways."""
    return [replace(sample, windows=(), window_share=0.0) for sample in samples]


def count_steps(samples: Iterable[Sample]) -> int:
    """Return the number of messages of all ranks in one replay."""
    return sum(one.replay_steps for sample in samples for one in sample.collectives)


def improve(network: Network, change: Change) -> Network:
    """Return the network with one improvement."""
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


def take_samples(
    collectives: Iterable[Collective], gains: Gains, most: int = MOST_SAMPLES
) -> list[Sample]:
    """Return evenly spaced samples of each kind, purpose and size; the ranks' parts of one exchange count as one.

    Args:
        collectives: of the run.
        gains: the most that the run can gain from each.
        most: the number of samples of each kind, purpose and size.
    """
    timed = (one for one in collectives if not one.hidden and not one.tests)
    return [_sample(group, gains, most) for group in by_key(timed).values()]


def _sample(group: Sequence[Collective], gains: Gains, most: int) -> Sample:
    stride, at_once = -(-len(group) // most), made_at_once(group)
    some = group[::stride]
    stood_for = (group[n : n + stride] for n in range(0, len(group), stride))
    limits = [limits_of(those, gains) for those in stood_for]
    return Sample(some, len(group) / at_once / len(some), limits, at_once)


def with_windows(
    sample: Sample, network: Network, windows_of: Callable[[Collective], Windows]
) -> Sample:
    """Return a sample with its TCP windows, and how much of its time they explain.

    Args:
        sample: as taken.
        network: as it was.
        windows_of: returns the windows at the start of a collective.
    """
    windows = [windows_of(one) for one in sample.collectives]
    pairs = list(zip(sample.collectives, windows, strict=True))
    gloo_s = sum(_gloo_s(one, network, {}) for one in sample.collectives)
    added_s = sum(_gloo_s(one, network, own) for one, own in pairs) - gloo_s
    took_s = sum(max(p.ended for p in one.parts) - one.complete_at for one in sample.collectives)
    share = min(1.0, max(0.0, (took_s - gloo_s) / added_s)) if added_s > 0 else 0.0
    return replace(sample, windows=windows, window_share=share)


def better_links(samples: Iterable[Sample], network: Network) -> list[Change]:
    """Return changes of all carriers in use."""
    used = used_carriers(samples, network)
    rates = [Change("rate", name) for name in used]
    return rates + [Change("delay", name) for name in used if network.delay_s.get(name)]


def used_carriers(samples: Iterable[Sample], network: Network) -> list[str]:
    """Return the carriers in use, in either direction: gloo's announcements of room go the other way."""
    flows = {
        pair
        for sample in samples
        for one in sample.collectives
        for part, peer in flows_of(one)
        for pair in ((part.rank, peer), (peer, part.rank))
    }
    known = sorted(flows & network.routes.keys())
    return list(dict.fromkeys(name for pair in known for name in network.routes[pair].carriers))


def samples_s(samples: Iterable[Sample], network: Network) -> float:
    """Return the seconds of all collectives that the samples stand for, as gloo makes them."""
    return sum(sample.each * sum(_seconds(sample, network)) for sample in samples)


def seconds_of(samples: Iterable[Sample], network: Network) -> list[list[float]]:
    """Return the seconds of each sampled collective, as gloo makes it."""
    return [_seconds(sample, network) for sample in samples]


def _seconds(sample: Sample, network: Network) -> list[float]:
    gloo_s = [_gloo_s(one, network, {}) for one in sample.collectives]
    if not sample.window_share:
        return gloo_s
    pairs = zip(sample.collectives, sample.windows, strict=True)
    slow_s = [_gloo_s(one, network, windows) for one, windows in pairs]
    return [s + sample.window_share * (slow - s) for s, slow in zip(gloo_s, slow_s, strict=True)]


def _gloo_s(one: Collective, network: Network, windows: Windows) -> float:
    bound, end = bound_s(one, network), gloo_end(one, network, windows)
    return 0.0 if bound is None or end is None else max(bound, end - one.complete_at)


def sentence(changes: Sequence[Mapping[str, object]]) -> str:
    """Return a sentence for the user with the first change; '' if nothing would help."""
    if not changes:
        return ""
    best = changes[0]
    how = "twice the rate" if best["what"] == "rate" else "half the delay"
    return f"{how} of {best['carrier']} would save {best['saves_s']:.1f} s of that"
