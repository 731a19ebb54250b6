"""Inspects the ranks of a run on this node from outside, for a launcher that detects stalls.

    python3 -S -m node.supervisor.rank_states RUN

prints one JSON object: a RankState (protocol/telemetry.py) by rank. A rank is identified by its environment, and has
all processes that inherited it. A process of the run without RANK belongs to its nearest ancestor with one.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from protocol.reader import document
from protocol.telemetry import RankState

PROC = Path("/proc")
SOCKETS = ("ss", "-H", "-t", "-i", "-n", "-p", "-O", "state", "established")
TICKS_S = os.sysconf("SC_CLK_TCK")
NOTE = "gradwire-collective"  # node/accounting/ledger.py


class Process(NamedTuple):
    """One process of a rank: proc_pid_stat(5)."""

    pid: int
    state: str
    cpu_s: float
    started: int
    parent: int


class Socket(NamedTuple):
    """One TCP connection, with the bytes that wait in it, and those that have gone through: arrived, not only sent."""

    pids: frozenset[int]
    peer: str
    unread: int
    unsent: int
    carried: int


def main() -> int:
    """Look at all ranks once, and print their states."""
    ranks = find_ranks(sys.argv[1])
    said = subprocess.run(SOCKETS, capture_output=True, text=True, check=False).stdout
    sockets = list(read_sockets(said))
    states = {rank: state_of(ranks[rank], sockets) for rank in sorted(ranks)}
    print(json.dumps(document(states)))
    return 0


def find_ranks(run: str) -> dict[str, list[Process]]:
    """Return the processes of each rank, the oldest first."""
    found: dict[int, Process] = {}
    own: dict[int, str] = {}
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            environ = dict(
                word.split("=", 1)
                for word in (path / "environ").read_text(errors="replace").split("\0")
                if "=" in word
            )
            if environ.get("TORCHELASTIC_RUN_ID") == run:
                process = read_process(path)
                found[process.pid] = process
                own |= {process.pid: environ["RANK"]} if "RANK" in environ else {}
    ranks: dict[str, list[Process]] = {}
    for process in found.values():
        if (rank := _rank_of(process, found, own)) is not None:
            ranks.setdefault(rank, []).append(process)
    for processes in ranks.values():
        processes.sort(key=lambda process: process.started)
    return ranks


def read_sockets(said: str) -> Iterator[Socket]:
    """Parse the connections that `ss` lists, a line each: what waits, the two ends, and words like bytes_acked:12.

    bytes_sent would count retransmissions: over a link that is cut, TCP sends the same bytes again for a quarter of an
    hour.
    """
    for line in said.splitlines():
        fields = line.split()
        if len(fields) < 4 or not (fields[0] + fields[1]).isdecimal():
            continue
        values = dict(re.findall(r"\b(bytes_acked|bytes_received):(\d+)", line))
        yield Socket(
            frozenset(int(pid) for pid in re.findall(r"\bpid=(\d+)", line)),
            fields[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:"),
            int(fields[0]),
            int(fields[1]),
            sum(map(int, values.values())),
        )


def state_of(processes: list[Process], sockets: list[Socket]) -> RankState:
    """Return the state of one rank."""
    pids = {process.pid for process in processes}
    own = [socket for socket in sockets if socket.pids & pids]
    states = [process.state for process in processes]
    stopped = [state for state in states if state in "Tt"]
    unread, unsent = (
        {
            peer: sum(getattr(s, what) for s in own if s.peer == peer)
            for peer in {s.peer for s in own}
        }
        for what in ("unread", "unsent")
    )
    return RankState(
        state=(stopped or (["R"] if "R" in states else states))[0],
        cpu_s=round(sum(process.cpu_s for process in processes), 2),
        bytes=sum(socket.carried for socket in own) + sum(map(_disk_bytes, pids)),
        unread={peer: count for peer, count in unread.items() if count},
        unsent={peer: count for peer, count in unsent.items() if count},
        collective=_collective(processes[0].pid),
    )


def read_process(path: Path) -> Process:
    """Read a process, or a thread, from its folder in /proc.

    The second field of its stat, the name in brackets, may hold anything.

    Raises:
        OSError: it has ended; ValueError, IndexError: its stat is invalid.
    """
    fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_S
    return Process(int(path.name), fields[0], cpu_s, int(fields[19]), int(fields[1]))


def _rank_of(process: Process, found: Mapping[int, Process], own: Mapping[int, str]) -> str | None:
    """Return the rank of a process, or of its nearest ancestor that has one: a job of its own may be without."""
    seen: set[int] = set()  # a pid that is used again could close a circle
    while process.pid not in own:
        seen.add(process.pid)
        if process.parent not in found or process.parent in seen:
            return None
        process = found[process.parent]
    return own[process.pid]


def _disk_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "io").read_text().splitlines()
        values = dict(line.split(": ") for line in lines)
        return int(values["read_bytes"]) + int(values["write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0


def find_note(pid: int) -> Path | None:
    """Return where a rank of node.train notes its collectives; None for other programs."""
    for path in (PROC / str(pid) / "fd").glob("*"):
        with suppress(OSError):
            if NOTE in path.readlink().name:
                return path
    return None


def _collective(pid: int) -> str:
    """Return what a rank of node.train has noted; empty for other programs."""
    note = find_note(pid)
    try:
        return note.read_text(errors="replace").strip() if note else ""
    except OSError:  # it has ended meanwhile
        return ""


if __name__ == "__main__":
    sys.exit(main())
