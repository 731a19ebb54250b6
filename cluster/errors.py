"""Everything that can go wrong, as one tree; a message says what happened, where, and what to try.

    ClusterError                exit 1   the cluster or the run failed
    ├── UsageError              exit 2   a wrong option, profile, path: nothing was started
    ├── PrerequisiteError       exit 2   something this machine lacks: Docker, compose, a permission
    ├── NodeError               exit 1   a command on one or more nodes; carries every node's outcome
    ├── ContractBroken          exit 1   a link is not what was asked for
    └── RunFailed               exit 1   a rank ended with an error

Exit codes are public: 0 done, 1 failed, 2 usage or configuration, 3 our bug, 130 interrupted.
"""

import difflib
from collections.abc import Iterable, Mapping

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUG = 3
EXIT_INTERRUPTED = 130


class ClusterError(Exception):
    """The cluster or the run failed.

    Args:
        message: what happened, and where.
        hint: what to try.
        document: what --json prints all the same: a broken contract, the summary of a failed run.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: str = "", document: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.document = document

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(ClusterError):
    """A wrong option or configuration; nothing was started."""

    exit_code = EXIT_USAGE


class PrerequisiteError(ClusterError):
    """This machine lacks something that gradwire needs."""

    exit_code = EXIT_USAGE


class NodeError(ClusterError):
    """A command failed on some nodes; `outcomes` has every node's own words."""

    def __init__(self, message: str, outcomes: Mapping[str, str], hint: str = "") -> None:
        lines = [f"  {node}: {outcome}" for node, outcome in outcomes.items()]
        super().__init__("\n".join([message, *lines]), hint)
        self.outcomes = dict(outcomes)


class ContractBroken(ClusterError):
    """A link is measurably not what was asked for."""


class RunFailed(ClusterError):
    """A rank ended with an error."""


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """An error for a misspelt name that offers the nearest known one."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return UsageError(f"unknown {what} {name!r}", f"{guess}known: {', '.join(names)}")
