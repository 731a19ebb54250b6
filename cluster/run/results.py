"""Fetches the results of ranks into the run folder, node by node; a failure does not affect other nodes' results.

Nodes run user code as root, so what they send is not trusted. Results that could not be fetched stay on their node.
"""

from __future__ import annotations

import errno
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from cluster.base.console import Console
from cluster.base.errors import ClusterError, NodeError, UsageError
from cluster.engine.resources import UNITS
from cluster.ssh.fleet import Fleet
from cluster.ssh.tar_stream import BadArchive
from cluster.ssh.unpack import Unpacked, unpack
from protocol.rank import EXIT_NO_FOLDER, LOST

MOST_RESULTS = "10g"
AT_ONCE = 4  # nodes: the host's processor is the bottleneck, and each has 2 MB in flight
SILENCE_S = 15.0
SAY_AFTER_S = 5.0
# What a line carries that is certainly alive, even a slow one to another host: on average over minutes, for all nodes
# that share it. Without it, a node could go on for weeks until it has sent the most that is fetched.
LEAST_BYTES_S, PACE_WINDOW_S = 20_000, 300.0
# Writes a folder to standard output as a tar archive, if it exists.
SEND = (
    "sh",
    "-c",
    f'[ -d "$0" ] || exit {EXIT_NO_FOLDER}; exec tar --format=gnu -C "$0" -c .',
)
TAR_WARNED, TAR_PARTLY = 1, 2  # GNU tar: a file changed while it was read; some were unreadable
FULL = {errno.ENOSPC, errno.EDQUOT}
MOST_LINES, MOST_CHARACTERS = 10, 300  # shown of a node's messages


@dataclass(frozen=True)
class Fetched:
    """The outcome of fetching one node's results.

    Attributes:
        failure: why they are missing or incomplete; empty if they are complete.
        notes: other messages for the user.
        is_full: whether this machine's disk was full.
    """

    failure: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    is_full: bool = False


@dataclass(frozen=True)
class Fetch:
    """What to fetch, and where to put it.

    Attributes:
        there: the folder on every node.
        here: the folder on this machine, which gets a folder for each node.
        limit_bytes: the most that is fetched from one node.
    """

    there: str
    here: Path
    limit_bytes: int


def parse_max_results(value: object) -> int:
    """Parse the most that may be fetched from a node (500m, 10g) into bytes.

    Raises:
        UsageError: it is not a size.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([bkmgt]?)", str(value).lower(), re.ASCII)
    size = int(float(found[1]) * UNITS[found[2]]) if found else 0
    if size < 1:
        raise UsageError(f"--max-results is {str(value)!r}", "500m or 10g, for each node")
    return size


def fetch_results(
    fleet: Fleet, nodes: Sequence[str], fetch: Fetch, console: Console
) -> dict[str, Fetched]:
    """Fetch what the ranks of some nodes left; return the outcomes, by node.

    Nodes for which this machine's disk had no room are tried again one by one, once all partial results are removed.
    """
    arrivals = _Arrivals(console)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        found = pool.map(
            lambda node: _fetch_one(fleet, node, fetch, fetch.here / node, arrivals), nodes
        )
        fetched = dict(zip(nodes, found, strict=True))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for node in [node for node in nodes if fetched[node].is_full]:
        fetched[node] = _fetch_one(fleet, node, fetch, fetch.here / node, arrivals)
    return fetched


def fetch_folder(fleet: Fleet, node: str, fetch: Fetch, console: Console) -> Fetched:
    """Fetch a folder from one node; `fetch.here` becomes its copy."""
    return _fetch_one(fleet, node, fetch, fetch.here, _Arrivals(console))


def plain(text: str) -> str:
    """Make a node's message safe for a terminal: one line, printable, of limited length."""
    return "".join(c if c.isprintable() else "?" for c in text)[:MOST_CHARACTERS]


def _fetch_one(fleet: Fleet, node: str, fetch: Fetch, folder: Path, arrivals: _Arrivals) -> Fetched:
    """Fetch one node's results; remove the local copy if fetching fails."""
    try:
        return _try(fleet, node, fetch, folder, arrivals)
    except Exception as error:  # the node controls the input, and must not harm other nodes'
        _remove(folder)
        is_full = isinstance(error, OSError) and error.errno in FULL
        # Some exceptions have no message; an empty failure would mean that all has come.
        words = _words_of(node, error) or type(error).__name__
        return Fetched(plain(words), is_full=is_full)


def _try(fleet: Fleet, node: str, fetch: Fetch, folder: Path, arrivals: _Arrivals) -> Fetched:
    folder.mkdir(parents=True)
    unpacked = Unpacked()

    def consume(pieces: Iterator[bytes]) -> None:
        nonlocal unpacked
        brisk = _keep_pace(node, pieces, arrivals)
        unpacked = unpack(brisk, folder, fetch.limit_bytes, fetch.there)

    process = fleet.start(node, [*SEND, fetch.there])
    exit_code, stderr = process.hand_over(consume, SILENCE_S)
    words = [plain(line) for line in stderr.decode(errors="replace").splitlines()]
    if unpacked.is_empty and exit_code == EXIT_NO_FOLDER:
        return Fetched()  # no rank started there
    if unpacked.is_empty or exit_code not in (0, TAR_WARNED, TAR_PARTLY):
        raise BadArchive(_how(exit_code, words))
    notes = [f"{plain(name)} is left out: {why}" for name, why in unpacked.left_out.items()]
    if more := unpacked.left_out_count - len(notes):
        notes.append(f"and {more} more are left out")
    whole = exit_code != TAR_PARTLY and not unpacked.lacks_files
    return Fetched("" if whole else "some files are missing", notes + words[-MOST_LINES:])


def _how(exit_code: int, words: Sequence[str]) -> str:
    if exit_code == LOST:
        return "the connection broke"
    return f"tar ended with exit code {exit_code} {' '.join(words[-1:])}".strip()


def _words_of(node: str, error: Exception) -> str:
    if isinstance(error, NodeError):
        return error.outcomes.get(node, error.message)
    if isinstance(error, ClusterError):
        return error.message
    if isinstance(error, OSError) and error.errno in FULL:
        return "no room on this machine's disk"
    if isinstance(error, OSError):
        return f"{error.strerror or error} on this machine"
    return str(error) if isinstance(error, BadArchive) else repr(error)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


class _Arrivals:
    """Counts what the nodes of one fetch send, and says every SAY_AFTER_S how much has come.

    Args:
        console: told how much.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._said_at = console, time.monotonic()
        self._counts: dict[str, int] = {}

    @property
    def total_bytes(self) -> int:
        """What has come from all nodes."""
        return sum(list(self._counts.values()))

    def add(self, node: str, count: int) -> None:
        """Count bytes that came from a node."""
        self._counts[node] = self._counts.get(node, 0) + count
        if time.monotonic() - self._said_at >= SAY_AFTER_S:
            self._said_at = time.monotonic()
            self._console.say(f"fetching results: {self.total_bytes / 1e6:.0f} MB so far")


def _keep_pace(node: str, pieces: Iterator[bytes], arrivals: _Arrivals) -> Iterator[bytes]:
    """Yield the pieces that a node sends, counting them.

    Raises:
        NodeError: in PACE_WINDOW_S of waiting for it, less than LEAST_BYTES_S came on average, from all nodes together.
    """
    waited_s, before_bytes, began = 0.0, arrivals.total_bytes, time.monotonic()
    for piece in pieces:
        waited_s += min(time.monotonic() - began, SILENCE_S)  # Ctrl-Z stops us, but not the clock
        arrivals.add(node, len(piece))
        if waited_s >= PACE_WINDOW_S:
            if arrivals.total_bytes - before_bytes < LEAST_BYTES_S * PACE_WINDOW_S:
                raise NodeError("the node is too slow", {node: _too_slow()})
            waited_s, before_bytes = 0.0, arrivals.total_bytes
        yield piece
        began = time.monotonic()  # our own time does not count


def _too_slow() -> str:
    return f"less than {LEAST_BYTES_S / 1000:.0f} kB/s came for {PACE_WINDOW_S:.0f} s"
