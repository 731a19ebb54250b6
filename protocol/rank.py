"""The order to start a rank, and the report of how it ended: standard input and standard error of `node.rank`.

`python -m node.rank` reads its order as the first line of standard input. Standard input then stays open; its end
means: stop. Standard error ends with the report, as one line, unless another run has the node: then it has one line
that names that run, and the exit code is 75. An order that is none is refused with 2. A node takes several ranks of
one run, each by a `node.rank` of its own.

A rank that is not essential is started again on its node, by another `node.rank`, after it ended with a failure: 1, 2,
then 4 s later, and after a bystander's 2 s more. It gets the same order but for TORCHELASTIC_RESTART_COUNT. Not so
where its node was lost or another run has it, nor once the run is being ended. Its run folder is as the rank left it;
of an error file only what was written since the last start counts. What it prints goes on in the same log, after a
line that says how it had ended.
"""

from typing import Annotated, NamedTuple

from protocol.reader import WORD, Check, within

EXIT_USAGE = 2
"""Exit code of a command, or of a rank: a mistake of the user's, which one line on standard error names."""
EXIT_BUSY = 75
"""Exit code of `node.rank`: another run has this node. EX_TEMPFAIL of sysexits.h."""
EXIT_NO_FOLDER = 44
"""Exit code of the command that sends a run's folder to the host: there is none, as no rank began on this node."""
LOST = -1000
"""Stands for an exit code that nobody knows, as the connection to the node went first; no signal has this number."""
EXIT_CODES = (-64, 255)
"""The least and the most of a rank's exit code: -n for signal n, of which Linux has 64."""
GRACE_S = 10.0
"""A rank that is to stop has so long between SIGTERM and SIGKILL."""
MOST_ERROR_CHARACTERS = 300
"""Of what a rank says of its failure."""

NOT_EMPTY = Check("at least one word", bool)
SHORT = Check(
    f"at most {MOST_ERROR_CHARACTERS} characters",
    lambda value: len(value) <= MOST_ERROR_CHARACTERS,
)


class StartOrder(NamedTuple):
    """What a rank is and where it runs."""

    run: Annotated[str, WORD]
    """The name of the run."""
    argv: Annotated[list[str], NOT_EMPTY]
    """The command, of this very rank: without placeholders."""
    cwd: str
    """Its current folder."""
    run_dir: str
    """The folder for what it leaves; it is made if it is not there."""
    env: dict[str, str]
    """Environment variables, besides those of the node (`protocol/rank_variables.py`)."""


class RankReport(NamedTuple):
    """How a rank ended."""

    exit_code: Annotated[int, within(*EXIT_CODES)]
    """Its exit code; -n for signal n."""
    time: float
    """When it ended; where it left an error file, when it wrote that. Unix time, by the node's clock."""
    error: Annotated[str, SHORT] = ""
    """What the error file says, in one line; empty where there is none."""
    bystander: bool = False
    """Whether its error, or the exception that it printed last, speaks of another rank's end or silence ("closed by
    peer"): then it is not the root cause where another one failed."""
    out_of_memory: bool = False
    """Whether the kernel killed a process of its container for lack of memory while it ran."""
