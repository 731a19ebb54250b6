"""Measures how late timers of this process are, except those of pings, which take precedence."""

import threading
import time

# A timer: with many nodes longer, because those of all nodes together must not keep the host busy. Measured: 64 nodes
# with a timer of 10 ms each take a sixth of two processors.
TICK_S, TICK_PER_NODE_S = 0.01, 0.001


def tick_s(nodes: int) -> float:
    """Return how long one timer lasts in a cluster of this size."""
    return max(TICK_S, TICK_PER_NODE_S * nodes)


class TimerGauge:
    """Waits for timers, one after the other, in a thread of its own; `nodes`: the size of the cluster."""

    def __init__(self, nodes: int) -> None:
        self._tick_s = tick_s(nodes)
        self._lock = threading.Lock()
        self._count, self._late_s = 0, 0.0

    def run(self) -> None:
        """Wait for timers, for ever."""
        while True:
            due = time.monotonic() + self._tick_s
            time.sleep(self._tick_s)
            late_s = time.monotonic() - due
            with self._lock:
                self._count, self._late_s = self._count + 1, self._late_s + late_s

    def take_late_ms(self) -> float:
        """Return by how many ms timers were late since the last call, on average."""
        with self._lock:
            count, late_s = self._count, self._late_s
            self._count, self._late_s = 0, 0.0
        return round(1000 * late_s / count, 3) if count else 0.0
