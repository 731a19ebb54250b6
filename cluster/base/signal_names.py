"""Names of signals. Pure."""

import signal


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have no names of their own but by their distance from the first."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = signal.SIGRTMIN.value
        is_real_time = first < number <= signal.SIGRTMAX
        return f"SIGRTMIN+{number - first}" if is_real_time else f"signal {number}"
