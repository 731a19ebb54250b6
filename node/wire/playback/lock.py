"""Marks that traces are changing links, for other processes that read or change the links of this node.

The process that changes them holds a socket of a fixed name, which is gone with the process; a file lists the links.
If there is the file without the process, the process was killed, and the links keep the last values of a trace.
"""

import json
import os
import socket
from typing import NamedTuple

from node.wire import state
from node.wire.commands import WireError
from protocol.link import Pair
from protocol.reader import FormatError, document, parse

ADDRESS = "\0gradwire-replay"
"""An abstract socket, like that of the nfqueue daemon: it belongs to the network namespace, as the links do."""
FILE = state.FOLDER / "replay.json"


class Mark(NamedTuple):
    """The content of the file."""

    process: int
    """The process that changes links."""
    links: list[Pair]
    """The links of the cluster that traces change."""


def occupy(pairs: list[Pair]) -> socket.socket:
    """Become the process that changes the links of this node, until the returned socket is closed.

    Args:
        pairs: the links that traces change, which other processes are told.

    Raises:
        WireError: another process changes them.
    """
    sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sign.bind(ADDRESS)
    except OSError as error:
        sign.close()
        raise WireError(_words()) from error
    FILE.write_text(json.dumps(document(Mark(os.getpid(), pairs))))
    return sign


def pairs_now() -> list[Pair]:
    """Return the links of the cluster that traces may change at the moment."""
    mark = _read() if _is_occupied() else None
    return mark.links if mark else []


def refuse() -> None:
    """Refuse to touch links while traces change them.

    Raises:
        WireError: traces change them.
    """
    if _is_occupied():
        raise WireError(_words())


def fault() -> str:
    """Return what is wrong with the links if a replay could not restore them; empty if nothing is."""
    if FILE.exists() and not _is_occupied():
        return "a trace was cut off here, and links have its last values: apply the plan again"
    return ""


def forget() -> None:
    """Remove the file: the links are as a plan wants them."""
    FILE.unlink(missing_ok=True)


def _words() -> str:
    mark = _read()
    links = ", ".join(f"{src} -> {dst}" for src, dst in mark.links) if mark else ""
    return (
        f"traces are replayed on {links or 'some links'}: "
        f"end that where it was begun, or on this node with `kill {mark.process if mark else 'PID'}`"
    )


def _is_occupied() -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as visitor:
        try:
            visitor.connect(ADDRESS)
        except ConnectionRefusedError:
            return False
    return True


def _read() -> Mark | None:
    """Read the file; None while it is about to appear or to disappear."""
    try:
        return parse(Mark, FILE.read_text())
    except (OSError, FormatError):
        return None
