"""Children that end with us, also when we are killed: nobody else would end them."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PRCTL = ctypes.CDLL(None).prctl  # loaded here, for between fork and exec nothing may be


def end_with_parent() -> None:
    """For `preexec_fn`: the child gets SIGTERM when the thread ends that has started it."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
