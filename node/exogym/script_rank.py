"""Runs a user's script again, as one rank of the fit that the script has called on the host.

    python -m node.exogym.script_rank [--attached] ORDER script.py ARGS…
    python -m node.exogym.script_rank [--attached] ORDER -m package.module ARGS…

Trainer.fit (node/exogym/trainer.py) has written the folder ORDER; protocol/fit_order.py describes its contents. Every
rank reaches the same call of fit with the same model and data, and trains there. Until then the script draws the same
random numbers from torch as where fit was called. With --attached, it ends when standard input does: the process at the
other end is gone. The exit code is 0 after training, 2 with one line for a mistake of the user's, 1 for a failure.
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from node.base.options import OptionError
from node.exogym.fit_order import RankDone, read_fit_order
from node.training.compiler import defer_compiler
from protocol.fit_order import ATTACHED, FitOrder
from protocol.rank import EXIT_USAGE
from protocol.rank_variables import FIT


def run_script_rank(order: FitOrder, words: Sequence[str]) -> int:
    """Run the script until its fit has trained this rank; return the exit code.

    Raises:
        OptionError: the script ended before it reached that fit.
    """
    import torch

    torch.manual_seed(order.seed)
    try:
        _run(words)
    except RankDone as done:
        return int(str(done.code))
    except SystemExit as end:
        if end.code:
            raise
    raise OptionError(
        f"the script ended before call {order.fit} of fit: on every rank it must make the same calls "
        "as where it was started"
    )


def _run(words: Sequence[str]) -> None:
    """Run the script as Python would."""
    if words[0] == "-m":
        sys.argv = list(words[1:])
        sys.path[0] = str(Path.cwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Exit 0 after training, 2 with one line for a mistake, 1 for a failure."""
    words = sys.argv[1:]
    if words[0] == ATTACHED:
        words = words[1:]
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    folder, *words = words
    os.environ[FIT] = str(Path(folder).resolve())
    order = read_fit_order(os.environ)
    assert order is not None
    # Before torch is loaded: node/train.py explains why.
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or "1"
    from torch.distributed.elastic.multiprocessing.errors import record

    defer_compiler()
    try:
        # Errors before fit also go to $TORCHELASTIC_ERROR_FILE.
        sys.exit(record(run_script_rank)(order, words))
    except OptionError as error:
        print(f"fit: error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None


if __name__ == "__main__":
    main()
