"""Measures how late timers of this process are, except those of pings, which take precedence."""

import threading
import time

TICK_S = 0.01


class TimerGauge:
    """Waits for timers, one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._late_s = 0, 0.0

    def run(self) -> None:
        """Wait for timers, for ever."""
        while True:
            due = time.monotonic() + TICK_S
            time.sleep(TICK_S)
            late_s = time.monotonic() - due
            with self._lock:
                self._count, self._late_s = self._count + 1, self._late_s + late_s

    def take_late_ms(self) -> float:
        """Return by how many ms timers were late since the last call, on average."""
        with self._lock:
            count, late_s = self._count, self._late_s
            self._count, self._late_s = 0, 0.0
        return round(1000 * late_s / count, 3) if count else 0.0
