"""How long the collectives of a run take by the model of gloo, on its links and on others. Pure.

Of collectives that are alike some are computed, as gloo makes them (gloo_timing.py), with TCP's windows
(tcp_timing.py), and stand for the others. They take at least their bound. What windows add counts only as far as it was
measured, since the model's value can be an upper limit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from cluster.accounting.bounds import Network, bound_s, flows_of, sends_of
from cluster.accounting.collectives import Collective
from cluster.accounting.gloo_timing import gloo_ends
from cluster.accounting.run_replay import Quicker, Transfer
from cluster.accounting.tcp_timing import Windows
from cluster.accounting.tcp_windows import windows_on

SAMPLES = (8, 2, 1)  # of collectives that are alike: the most that the budget allows
Seconds = Mapping[int | None, float]
"""Of a collective, once all are there: None; of an exchange, once both are there: by peer."""


@dataclass(frozen=True)
class Sample:
    """Some collectives that stand for all that are alike.

    Attributes:
        collectives: the samples.
        stands_for: all that each of them stands for, itself included.
        carriers: that they use, in either direction: gloo's announcements of room go the other way.
        windows: TCP's windows at the start of each; empty: unlimited.
        window_share: the measured share of the time that these add, 0 to 1.
    """

    collectives: Sequence[Collective]
    stands_for: Sequence[Sequence[Collective]]
    carriers: tuple[str, ...]
    windows: Sequence[Windows] = ()
    window_share: float = 0.0

    @property
    def steps(self) -> int:
        """The number of messages of all ranks in one replay."""
        return sum(one.replay_steps for one in self.collectives)


def affordable_samples(
    collectives: Sequence[Collective],
    network: Network,
    changed: Sequence[str],
    most_steps: int,
    *,
    everything: bool = False,
) -> tuple[list[Sample], int]:
    """Return as many samples as can be replayed on all changed links; else as few as possible.

    Args:
        collectives: of the run.
        network: links.
        changed: the carrier of each change, the most promising first.
        most_steps: messages of all ranks.
        everything: whether also of tests, and of what computing hid.

    Returns:
        the samples, and on how many of the changed links they can be replayed; no samples if they are too many or too
        large even for the links as they were.
    """
    samples: list[Sample] = []
    for most in SAMPLES:
        samples = take_samples(collectives, network, most, everything=everything)
        if (count := _affordable(samples, changed, most_steps)) == len(changed):
            return samples, count
    return (samples, count) if count >= 0 else ([], 0)


def _affordable(samples: Sequence[Sample], changed: Iterable[str], most_steps: int) -> int:
    """Return on how many of the changed links samples can be replayed; -1: not even on those that they had."""
    steps: Counter[str] = Counter()
    for sample in samples:
        steps.update(dict.fromkeys(sample.carriers, 2 * sample.steps))  # with and without windows
    as_it_was = 2 * sum(sample.steps for sample in samples)
    sums = accumulate((steps[name] for name in changed), initial=as_it_was)
    return sum(1 for _ in takewhile(lambda total: total <= most_steps, sums)) - 1


def take_samples(
    collectives: Iterable[Collective],
    network: Network,
    most: int = SAMPLES[0],
    *,
    everything: bool = False,
) -> list[Sample]:
    """Return the first, and evenly spaced others, of each kind, purpose and size; of exchanges, also of rank and peers.

    Args:
        collectives: of the run.
        network: links.
        most: the number of samples of those that are alike.
        everything: whether also of tests, and of what computing hid.
    """
    groups: dict[object, list[Collective]] = {}
    for one in collectives:
        if everything or not (one.hidden or one.tests):
            groups.setdefault(_likeness(one), []).append(one)
    return [_sample(group, network, most) for group in groups.values()]


def _likeness(one: Collective) -> object:
    if one.key[0] != "exchange":
        return one.key, one.hidden
    return one.key, one.hidden, one.parts[0].rank, frozenset(part.rank for part in one.others)


def _sample(group: list[Collective], network: Network, most: int) -> Sample:
    """Return samples of a group: its first, of which connections are new, stands for itself alone."""
    alone = group[:1] if 1 < most < len(group) else []
    rest = group[len(alone) :]
    stride = -(-len(rest) // (most - len(alone)))
    stretches = [rest[n : n + stride] for n in range(0, len(rest), stride)]
    stands_for = [alone, *stretches] if alone else stretches
    middle = [alike[len(alike) // 2] for alike in stands_for]
    return Sample(middle, stands_for, _carriers(group[0], network))


def _carriers(one: Collective, network: Network) -> tuple[str, ...]:
    pairs = {
        pair
        for part, peer in (*flows_of(one), *sends_of(one))
        for pair in ((part.rank, peer), (peer, part.rank))
        if pair in network.routes
    }
    return tuple(dict.fromkeys(n for pair in sorted(pairs) for n in network.routes[pair].carriers))


def carriers_in_use(collectives: Iterable[Collective], network: Network) -> list[str]:
    """Return the carriers that a run's collectives use, but for those of tests."""
    return used_carriers(take_samples(collectives, network, most=1))


def used_carriers(samples: Iterable[Sample]) -> list[str]:
    """Return the carriers in use."""
    return list(dict.fromkeys(name for sample in samples for name in sample.carriers))


def with_windows(
    sample: Sample, network: Network, windows_of: Callable[[Collective], Windows]
) -> Sample:
    """Return a sample with its TCP windows, and how much of its time they explain: all, if computing hid what it took.

    Args:
        sample: as taken.
        network: as it was.
        windows_of: returns the windows at the start of a collective.
    """
    windows = [windows_of(one) for one in sample.collectives]
    if sample.collectives[0].hidden:
        return replace(sample, windows=windows, window_share=1.0)
    gloo_s = sum(_whole_s(one, network, {}) for one in sample.collectives)
    pairs = zip(sample.collectives, windows, strict=True)
    added_s = sum(_whole_s(one, network, own) for one, own in pairs) - gloo_s
    took_s = sum(max(p.ended for p in one.parts) - one.complete_at for one in sample.collectives)
    share = min(1.0, max(0.0, (took_s - gloo_s) / added_s)) if added_s > 0 else 0.0
    return replace(sample, windows=windows, window_share=share)


class TransferModel:
    """The predicted seconds of a run's collectives.

    Args:
        samples: of its collectives.
        network: the links of the run.

    Attributes:
        samples: the same.
        seconds: of all transfers, on the links of the run.
    """

    def __init__(self, samples: Sequence[Sample], network: Network) -> None:
        self.samples, self._network = samples, network
        self.seconds = _of_all(samples, [seconds_of(sample, network) for sample in samples])

    def quicker_on(self, network: Network, carrier: str = "") -> Quicker:
        """Return what is quicker on other links.

        Args:
            network: with routes between the same ranks.
            carrier: the only one that differs; empty: any may.
        """
        changed = [one for one in self.samples if not carrier or carrier in one.carriers]
        return self._quicker(changed, [seconds_of(one, network, self._network) for one in changed])

    def quicker_as(self, samples: Sequence[Sample]) -> Quicker:
        """Return what is quicker if the samples were these instead, one for each, on the links of the run."""
        return self._quicker(self.samples, [seconds_of(one, self._network) for one in samples])

    def quicker_with(
        self, windows_of: Callable[[Collective], Windows], network: Network | None = None
    ) -> Quicker:
        """Return what is quicker with other TCP windows.

        Args:
            windows_of: returns the windows at the start of a collective, on these links.
            network: other links, with routes between the same ranks; None: those of the run.
        """
        links = network or self._network
        then = [
            replace(one, windows=[windows_of(collective) for collective in one.collectives])
            for one in self.samples
        ]
        return self._quicker(self.samples, [seconds_of(one, links) for one in then])

    def _quicker(self, samples: Sequence[Sample], then: Sequence[Sequence[Seconds]]) -> Quicker:
        """Return all that these samples stand for, each as much quicker as its sample."""
        after = _of_all(samples, then)
        saved = ((one, self.seconds[one] - s) for one, s in after.items())
        return Quicker({one: s for one, s in saved if s})


def _of_all(
    samples: Sequence[Sample], seconds: Sequence[Sequence[Seconds]]
) -> dict[Transfer, float]:
    return {
        (id(one), peer): s
        for sample, of_sample in zip(samples, seconds, strict=True)
        for alike, each in zip(sample.stands_for, of_sample, strict=True)
        for one in alike
        for peer, s in each.items()
    }


def seconds_of(sample: Sample, network: Network, was: Network | None = None) -> list[Seconds]:
    """Return the seconds of each sampled collective.

    Args:
        sample: with its windows.
        network: links.
        was: the links for which the windows are; None: the same.
    """
    gloo_s = [_seconds(one, _ends(one, network, {})) for one in sample.collectives]
    if not sample.window_share:
        return gloo_s
    windows = [windows_on(own, was, network) if was else own for own in sample.windows]
    pairs = zip(sample.collectives, windows, strict=True)
    slow_s = [_seconds(one, _ends(one, network, own)) for one, own in pairs]
    share = sample.window_share
    return [
        {peer: s + share * (slow[peer] - s) for peer, s in quick.items()}
        for quick, slow in zip(gloo_s, slow_s, strict=True)
    ]


def _seconds(one: Collective, ends: Seconds) -> Seconds:
    entered: dict[int | None, float] = {part.rank: part.entered for part in one.others}
    own = one.parts[0].entered
    began = {peer: one.complete_at if peer is None else max(own, entered[peer]) for peer in ends}
    return {peer: end - began[peer] for peer, end in ends.items()}


def _whole_s(one: Collective, network: Network, windows: Windows) -> float:
    """Return the seconds of a collective from when all were there."""
    return max(_ends(one, network, windows).values()) - one.complete_at


def _ends(one: Collective, network: Network, windows: Windows) -> Seconds:
    """Return the ends, all later by as much as the last of them is before the bound; without a bound, at once."""
    bound, ends = bound_s(one, network), gloo_ends(one, network, windows)
    if bound is None or not ends:
        return {None: one.complete_at}
    short_s = max(0.0, one.complete_at + bound - max(ends.values()))
    return {peer: end + short_s for peer, end in ends.items()}
