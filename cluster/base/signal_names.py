"""Names of signals. Pure."""

import signal


def signal_name(number: int) -> str:
    """Return a signal's name: SIGKILL for 9, SIGRTMIN+N for a real-time signal, which has no other name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = signal.SIGRTMIN.value
        is_real_time = first < number <= signal.SIGRTMAX
        return f"SIGRTMIN+{number - first}" if is_real_time else f"signal {number}"
