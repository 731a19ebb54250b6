"""The order to start a rank, and the report of how it ended: standard input and standard error of `node.rank`.

`python -m node.rank` reads its order from the first line of standard input. Standard input then stays open; its end
stops the rank. Standard error ends with the report, as one line. If another run has the node, standard error has one
line that names that run, and the exit code is 75. An invalid order is refused with 2. A node takes several ranks of one
run, each under its own `node.rank`.

A rank that is not essential is restarted on its node, by another `node.rank`, after it failed: 1, 2, then 4 s later,
and 5 s more if it was a bystander. It gets the same order except for TORCHELASTIC_RESTART_COUNT. It is not restarted if
its node was lost or is busy with another run, after a user error (2), after TORCHELASTIC_MAX_RESTARTS restarts, or once
the run is being ended. Its run folder is as the rank left it; of an error file, only what was written since the last
start counts. Its output continues in the same log, after a line that says how it had ended.
"""

from typing import Annotated, NamedTuple

from protocol.reader import WORD, Check, within

EXIT_USAGE = 2
"""Exit code of a command or a rank after a user error, which one line on standard error describes."""
EXIT_BUSY = 75
"""Exit code of `node.rank`: another run has this node. EX_TEMPFAIL of sysexits.h."""
EXIT_NO_FOLDER = 44
"""Exit code of the command that sends a run's folder to the host: there is none, because no rank started here."""
LOST = -1000
"""Replaces an exit code that is unknown, because the connection to the node was lost; no signal has this number."""
EXIT_CODES = (-64, 255)
"""The bounds of a rank's exit code: -n for signal n; Linux has 64 signals."""
GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for a rank that has to stop."""
MOST_ERROR_CHARACTERS = 300
"""The most characters that are kept of a rank's error."""

NOT_EMPTY = Check("at least one word", bool)
SHORT = Check(
    f"at most {MOST_ERROR_CHARACTERS} characters",
    lambda value: len(value) <= MOST_ERROR_CHARACTERS,
)


def guilt(*, is_bystander: bool, time: float) -> tuple[bool, float]:
    """Return the sort key of a rank that failed: of several, the least is the root cause.

    Time alone does not tell: a failing rank leaves its group before it can say why, and bystanders may end sooner.

    Args:
        is_bystander: whether its error is about another rank's end or silence.
        time: when it failed, or ended, Unix time.
    """
    return is_bystander, time


class StartOrder(NamedTuple):
    """What a rank is and where it runs."""

    run: Annotated[str, WORD]
    """The name of the run."""
    argv: Annotated[list[str], NOT_EMPTY]
    """The command of this rank, without placeholders."""
    cwd: str
    """Its working directory."""
    run_dir: str
    """The folder for its results; it is created if it does not exist."""
    env: dict[str, str]
    """Environment variables in addition to those of the node (`protocol/rank_variables.py`)."""


class RankReport(NamedTuple):
    """How a rank ended."""

    exit_code: Annotated[int, within(*EXIT_CODES)]
    """Its exit code; -n for signal n."""
    time: float
    """When it ended or, if it left an error file, when it wrote that. Unix time, by the node's clock."""
    reported: float
    """When this report was written, by the same clock, which may be wrong."""
    error: Annotated[str, SHORT] = ""
    """The error in the error file, in one line; empty if there is none."""
    bystander: bool = False
    """Whether its error, or the last exception that it printed, tells of another rank's end or silence ("closed by
    peer"): then it is not the root cause if another rank failed."""
    out_of_memory: bool = False
    """Whether the kernel killed a process of its container for lack of memory while the rank ran."""
