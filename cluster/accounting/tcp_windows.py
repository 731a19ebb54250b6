"""TCP's windows at the start of each collective of a run: as sockets reported, else as a pause leaves them. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence

from cluster.accounting.bounds import Network, flows_of
from cluster.accounting.collectives import Collective
from cluster.accounting.tcp_timing import Windows, window_after


def windows_of_run(
    collectives: Sequence[Collective], network: Network, *, slow_start: bool
) -> Callable[[Collective], Windows]:
    """Return a function that returns the windows of each of these collectives.

    Args:
        collectives: all of the run.
        network: links.
        slow_start: whether an idle connection restarts with slow start.
    """
    pauses_s = _pauses_s(collectives) if slow_start else {}

    def windows(one: Collective) -> Windows:
        return _windows(one, network, pauses_s.get(id(one), 0.0), slow_start=slow_start)

    return windows


def _windows(
    collective: Collective, network: Network, paused_s: float, *, slow_start: bool
) -> Windows:
    """Return the window of each connection that carries something."""
    windows = {}
    for part, peer in flows_of(collective):
        if state := part.tcp.get(peer):
            windows[part.rank, peer] = state.window_now(slow_start=slow_start)
        else:
            windows[part.rank, peer] = window_after(paused_s, _rtt_s(network, part.rank, peer))
    return windows


def _rtt_s(network: Network, src: int, dst: int) -> float:
    routes = (network.routes.get(pair) for pair in ((src, dst), (dst, src)))
    return sum(route.delay_s for route in routes if route)


def _pauses_s(collectives: Iterable[Collective]) -> dict[int, float]:
    """Return, by id() of the collective, how long nothing was in flight before it began."""
    pauses_s: dict[int, float] = {}
    busy_until = -math.inf
    for one in sorted(collectives, key=lambda one: min(part.entered for part in one.parts)):
        pauses_s[id(one)] = max(0.0, one.complete_at - busy_until)
        busy_until = max(busy_until, *(part.ended for part in one.parts))
    return pauses_s
