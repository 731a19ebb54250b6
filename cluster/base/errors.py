"""The exception tree with its exit codes. A message says what happened, where, and what to try.

    ClusterError                exit 1   the cluster or the run failed
    ├── UsageError              exit 2   a wrong option, profile, path: nothing was started
    ├── PrerequisiteError       exit 2   something this machine lacks: Docker, compose, a permission
    ├── SlotTaken               exit 1   another network or program uses a cluster's subnet or ports
    ├── NodeError               exit 1   a command failed on one or more nodes; carries every node's outcome
    ├── ContractBroken          exit 1   a link is not what was asked for
    ├── ContractUndecided       exit 1   the host was too busy to tell whether a link is as asked
    └── RunFailed               exit 1   a rank ended with an error

Exit codes are public: 0 done, 1 failed, 2 usage or configuration, 3 our bug, 130 interrupted.
"""

import difflib
import errno
import reprlib
from collections.abc import Iterable, Mapping, Sequence

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUG = 3
EXIT_INTERRUPTED = 130


MOST_NAMES, MOST_SHOWN = 100, 200
# How similar two names must be, by difflib; the dashes of flags alone make --force similar to --lr.
ALIKE, ALIKE_FLAGS = 0.6, 0.75
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 3, 6, 6
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120


class ClusterError(Exception):
    """The cluster or the run failed.

    Args:
        message: what happened, and where.
        hint: what to try: a command, an action in the imperative, or a valid value.
        document: what --json prints despite the error: a broken contract, the summary of a failed run.
        see: where to find more about it: a log, a file.
    """

    exit_code = EXIT_FAILED

    def __init__(
        self, message: str, hint: str = "", document: object = None, see: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.document = document
        self.see = see

    def __str__(self) -> str:
        more = {"see": self.see, "try": self.hint}
        return "\n".join(
            [self.message, *(f"  {key}: {text}" for key, text in more.items() if text)]
        )


class UsageError(ClusterError):
    """A wrong option or configuration; nothing was started."""

    exit_code = EXIT_USAGE


class PrerequisiteError(ClusterError):
    """This machine lacks something that gradwire needs."""

    exit_code = EXIT_USAGE


class SlotTaken(ClusterError):
    """Another network or program uses the subnet or a port of a cluster's slot."""


class NodeError(ClusterError):
    """A command failed on some nodes; `outcomes` has each node's message."""

    def __init__(self, message: str, outcomes: Mapping[str, str], hint: str = "") -> None:
        lines = [f"  {node}: {outcome}" for node, outcome in outcomes.items()]
        super().__init__("\n".join([message, *lines]), hint)
        self.outcomes = dict(outcomes)


class NodeDied(NodeError):
    """The containers of some nodes have ended, or are gone; `outcomes` has the end of each one's log."""


class ContractBroken(ClusterError):
    """A link is measurably not what was asked for."""


class ContractUndecided(ClusterError):
    """No link is broken, but the host's load may have caused what some links measured."""


class RunFailed(ClusterError):
    """A rank ended with an error."""


SYSTEM_HINTS = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space",
    errno.EFBIG: "ulimit -f unlimited",
    errno.EMFILE: "ulimit -n 4096",
    errno.ENOMEM: "free memory",
    errno.EACCES: "change its owner or its permissions, or use another path",
    errno.EPERM: "change its owner or its permissions, or use another path",
    errno.EROFS: "use a folder that can be written",
}


def system_error(error: OSError, what: str = "") -> ClusterError:
    """Return an OSError as an error of the machine, not a bug of ours; `what` is put in front of the message."""
    words = error.strerror or str(error) or type(error).__name__
    said = [what, words, *([] if error.filename is None else [str(error.filename)])]
    hint = SYSTEM_HINTS.get(error.errno or 0, "python -m cluster.doctor")
    return ClusterError(": ".join(word for word in said if word), hint)


def unknown(what: str, name: object, known: Iterable[str]) -> UsageError:
    """Return an error for a misspelt name that suggests the nearest known one."""
    names = sorted(known)
    close = nearest(name, names) if isinstance(name, str) else ""
    guess = f"did you mean {close!r}? " if close else ""
    more = [] if len(names) <= MOST_NAMES else ["…"]
    return UsageError(
        f"unknown {what} {shown(name)}", f"{guess}one of: {', '.join(names[:MOST_NAMES] + more)}"
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the known name that was probably meant, or "": a flag that begins so, one that ends so, a similar one."""
    flags = [one for one in names if one.startswith("--")]
    begin = [one for one in flags if name.startswith("--") and one.startswith(name)]
    end = [one for one in flags if name.startswith("--") and one.endswith(name[1:])]
    cutoff = ALIKE_FLAGS if flags else ALIKE
    return [*begin, *end, *difflib.get_close_matches(name, names, n=1, cutoff=cutoff), ""][0]


def shown(value: object) -> str:
    """Return a user's value for a message, truncated: a few bytes of YAML may expand to gigabytes of text."""
    text = _SHORT.repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
