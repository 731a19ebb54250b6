"""Notes links that gloo's all-reduce cannot fill, though one TCP connection can. This is no fault of the link."""

from collections.abc import Sequence

from cluster.contract.verdicts import Verdict
from cluster.links.expected import all_reduce_mbyte_s

# Share of what TCP carries. On every link that is not short it is at least a little below 1.
NOTED_SHARE = 0.5


def gloo_note(verdicts: Sequence[Verdict]) -> str:
    """Return which links, and how much of the worst one an all-reduce gets; '' if it gets at least half of all."""
    slow = [v for v in verdicts if _share(v) < NOTED_SHARE]
    if not slow:
        return ""
    worst = min(slow, key=_share)
    speed = _speed(worst)
    return (
        f"an all-reduce fills less than half of {len(slow)} links, as gloo sends 2 MiB a round trip at most: "
        f"{worst.link.src} -> {worst.link.dst} carries {all_reduce_mbyte_s(speed, worst.expected_rtt_ms):.3g} of "
        f"{speed:.3g} MB/s; larger messages fill them (docs/links.md)"
    )


def _share(verdict: Verdict) -> float:
    speed = _speed(verdict)
    return all_reduce_mbyte_s(speed, verdict.expected_rtt_ms) / speed if speed else 1.0


def _speed(verdict: Verdict) -> float:
    """Return what one connection gets, in MB/s; if this machine is the limit, what was measured."""
    expected, measured = verdict.expected_goodput_mbyte_s, verdict.measured
    given = measured.goodput_mbyte_s or measured.rate_mbyte_s
    return min(expected, given) if verdict.clipped and given else expected
