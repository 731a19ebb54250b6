"""How long a run would have taken on other links: another profile, topology or draw. Pure.

Each collective takes as long as it did, and as much longer or shorter as the model says of the other links
(transfer_model.py), and the run is replayed with these (run_replay.py): ranks compute as they did. What computing hid
here may take longer than that there. TCP's windows are those that its connections would have there (tcp_windows.py).

Longer is by seconds: what a busy host added, it adds there. Shorter is by a share: a few per cent by which the model
was off on slow links can be more seconds than quick links take, so that a difference of seconds could be less than any
link allows, or nothing at all. (Not at least the bound instead: that is the end of the last rank, and others end
before.)

Lost packets and jitter have no model: on links that have them a run takes longer than predicted, and a run that had
them cannot be predicted, because what they cost it is not known. Nor has the model exchanges with several ranks over
the same link, uplink or downlink: it has each by itself.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cluster.accounting.alternatives import Recorded
from cluster.accounting.bounds import Network, are_routed, flows_of
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.run_replay import Quicker, RunReplay, Transfer
from cluster.accounting.tcp_windows import windows_of_run, windows_of_run_on
from cluster.accounting.transfer_model import TransferModel, affordable_samples, with_windows
from protocol.collectives import MOST_COLLECTIVES

MOST_STEPS = 1_000_000  # messages of all ranks in replays: about ten seconds
CLOCK_S = 1e-3  # ends are sums of two clocks' readings
SHARED = "exchanges with several ranks that share a link, an uplink or a downlink have no model"


@dataclass(frozen=True)
class OtherLinks:
    """Links that a run did not have.

    Attributes:
        network: between its ranks.
        slow_start: whether an idle connection restarts with slow start there.
        is_rough: whether any of them has losses, jitter or the like.
    """

    network: Network
    slow_start: bool
    is_rough: bool = False


@dataclass(frozen=True)
class PredictedRun:
    """A run as it would have been on other links.

    Attributes:
        longer_s: seconds by which it would have taken longer; less than 0: shorter.
        times: when rank 0 began or ended its collectives, in the recorded run: Unix times.
        late_s: by how much later it would have been there, parallel to `times`.
    """

    longer_s: float
    times: Sequence[float]
    late_s: Sequence[float]

    def longer_between_s(self, since: float, until: float) -> float:
        """Return by how many seconds rank 0 would have taken longer from one time of the recorded run to another."""
        return self._late_s(until) - self._late_s(since)

    def _late_s(self, time: float) -> float:
        before = bisect_right(self.times, time)
        return self.late_s[before - 1] if before else 0.0


class RunModel:
    """A run whose collectives are modelled, so that they can be predicted on other links.

    Args:
        run: as recorded.

    Attributes:
        obstacle: why it cannot be predicted; empty if it can.
    """

    def __init__(self, run: Recorded) -> None:
        self._run = run
        samples, _ = affordable_samples(
            run.collectives, run.network, (), MOST_STEPS, everything=True
        )
        self.obstacle = _obstacle(run) or ("" if samples else "too many or too large collectives")
        if self.obstacle:
            return
        windows = windows_of_run(run.collectives, run.network, slow_start=run.slow_start)
        known = [with_windows(one, run.network, windows) for one in samples]
        self._model = TransferModel(known, run.network)
        self._replay = RunReplay(run.collectives, self._model.seconds)

    def obstacle_on(self, others: OtherLinks) -> str:
        """Return why it cannot be predicted on these links; '' if it can."""
        if self.obstacle:
            return self.obstacle
        flows = [flow for one in self._run.collectives for flow in flows_of(one)]
        if not are_routed(flows, others.network):
            return "a rank cannot reach another there"
        return SHARED if _share_carriers(self._run.collectives, others.network) else ""

    def on(self, others: OtherLinks) -> PredictedRun:
        """Return the run on other links, where nothing is an obstacle."""
        run = self._run
        windows = windows_of_run_on(
            run.collectives, run.network, others.network, slow_start=others.slow_start
        )
        quicker = self._model.quicker_with(windows, others.network)
        then = _shorter_by_shares(quicker, self._model.seconds)
        saved_s, ahead_s = self._replay.saved_and_ahead_s(then, rank=0)
        return PredictedRun(-saved_s, [at for at, _ in ahead_s], [-s for _, s in ahead_s])


def _obstacle(run: Recorded) -> str:
    """Return why a run cannot be predicted on any other links; '' if nothing is known that prevents it."""
    parts: defaultdict[int, list[Part]] = defaultdict(list)
    for one in run.collectives:
        for part in one.parts:
            parts[part.rank].append(part)
    if any(link.is_rough for link in run.links):
        return "its own links had losses, jitter or the like"
    if any(len(own) >= MOST_COLLECTIVES for own in parts.values()):
        return f"only the first {MOST_COLLECTIVES} collectives of a rank are known"
    if any(map(_has_several_at_a_time, parts.values())):
        return "its ranks had several collectives at a time"
    return SHARED if _share_carriers(run.collectives, run.network) else ""


def _has_several_at_a_time(parts: Sequence[Part]) -> bool:
    ordered = sorted(parts, key=lambda part: part.entered)
    return any(later.entered < before.ended - CLOCK_S for before, later in pairwise(ordered))


def _share_carriers(collectives: Sequence[Collective], network: Network) -> bool:
    """Return whether exchanges with two receivers use the same carrier; those with one are bounded together."""
    exchanges = [one for one in collectives if one.key[0] == "exchange"]
    pairs = {(part.rank, peer) for one in exchanges for part, peer in flows_of(one)}
    known = pairs & network.routes.keys()
    uses = {(name, peer) for rank, peer in known for name in network.routes[rank, peer].carriers}
    return len({name for name, _ in uses}) < len(uses)


def _shorter_by_shares(quicker: Quicker, seconds: Mapping[Transfer, float]) -> Quicker:
    """Return the same, where what is quicker takes a share of what it took; `seconds`: by the model, as it was."""
    shares = {t: 1 - s / seconds[t] for t, s in quicker.transfers.items() if 0 < s <= seconds[t]}
    rest = {transfer: s for transfer, s in quicker.transfers.items() if transfer not in shares}
    return Quicker(rest, shares=shares)
