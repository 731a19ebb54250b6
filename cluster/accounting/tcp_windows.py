"""TCP's windows at the start of each collective of a run: as sockets reported, else as a pause leaves them. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cluster.accounting.bounds import Network, flows_of, sends_of
from cluster.accounting.collectives import Collective
from cluster.accounting.tcp_timing import (
    FIRST_WINDOW_BYTES,
    LEAST_RTO_S,
    SocketState,
    Window,
    Windows,
    window_after,
)

# What cubic leaves of a window as ssthresh after a loss; after a pause, 3/4 are left.
SSTHRESH_SHARE = 0.7


def windows_of_run(
    collectives: Sequence[Collective], network: Network, *, slow_start: bool
) -> Callable[[Collective], Windows]:
    """Return a function that returns the windows of each of these collectives.

    Args:
        collectives: all of the run.
        network: links.
        slow_start: whether an idle connection restarts with slow start.
    """
    return windows_of_run_on(collectives, network, network, slow_start=slow_start)


def windows_of_run_on(
    collectives: Sequence[Collective], was: Network, now: Network, *, slow_start: bool
) -> Callable[[Collective], Windows]:
    """Return a function that returns the windows that each of these collectives would have had on other links.

    Pauses would be as long, but a timeout, of which each halves a window, depends on the round trip.

    Args:
        collectives: all of the run.
        was: the links of the run.
        now: the other links, between the same ranks.
        slow_start: whether an idle connection restarts with slow start there.
    """
    pauses_s = _pauses_s(collectives) if slow_start else {}

    def windows(one: Collective) -> Windows:
        return _windows(one, was, now, pauses_s.get(id(one), 0.0), slow_start=slow_start)

    return windows


def windows_on(windows: Windows, was: Network, now: Network) -> Windows:
    """Return the windows that connections would have had on other links.

    A window that fills its route, or once did as ssthresh says, changes with the route. One that is smaller for another
    reason (a pause, losses, little to send) stays as it is.

    Args:
        windows: as they were.
        was: the links then.
        now: the other links, between the same ranks.
    """
    return {
        pair: _window_on(one, _full_bytes(was, pair), _full_bytes(now, pair))
        for pair, one in windows.items()
    }


def _window_on(window: Window, was_full_bytes: float, full_bytes: float) -> Window:
    size, ssthresh = window.size_bytes, window.ssthresh_bytes
    once_full = SSTHRESH_SHARE * was_full_bytes <= ssthresh < math.inf
    if not was_full_bytes or not (once_full or was_full_bytes <= size < math.inf):
        return window
    times = full_bytes / was_full_bytes
    if size > FIRST_WINDOW_BYTES:
        size = max(FIRST_WINDOW_BYTES, size * times)
    return Window(size, ssthresh * times)


def _full_bytes(network: Network, pair: tuple[int, int]) -> float:
    """Return what is in flight on a route that never pauses: its rate times its round trip; 0 if there is none."""
    route = network.routes.get(pair)
    return route.byte_s * _rtt_s(network, *pair) if route else 0.0


def _windows(
    collective: Collective, was: Network, now: Network, paused_s: float, *, slow_start: bool
) -> Windows:
    """Return the window of each connection that carries something."""
    windows = {}
    for part, peer in (*flows_of(collective), *sends_of(collective)):
        pair = part.rank, peer
        if state := part.tcp.get(peer):
            there = state if was is now else _state_on(state, pair, was, now)
            windows[pair] = there.window_now(slow_start=slow_start)
        else:
            windows[pair] = window_after(paused_s, _rtt_s(now, *pair))
    return windows


def _state_on(state: SocketState, pair: tuple[int, int], was: Network, now: Network) -> SocketState:
    """Return the state that a connection would have had on other links."""
    window = _window_on(state.window, _full_bytes(was, pair), _full_bytes(now, pair))
    rto_s = max(LEAST_RTO_S, state.rto_s + _rtt_s(now, *pair) - _rtt_s(was, *pair))
    return replace(state, window=window, rto_s=rto_s)


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
