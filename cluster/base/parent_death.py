"""Makes child processes end with us, even if we are killed and cannot end them ourselves."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PRCTL = ctypes.CDLL(None).prctl  # loaded here, because nothing may be loaded between fork and exec


def end_with_parent() -> None:
    """Have the kernel send the child SIGTERM when the thread that started it ends; for `preexec_fn`."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
