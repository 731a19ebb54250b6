"""Marks that traces are changing links, for others that read or change those of this node.

A socket of one name is held by the process that does it, and gone with the process; a file says which links they are.
The file without the process means that the process was killed: the links have the last values of a trace for ever.
"""

import json
import os
import socket
from typing import NamedTuple

from node.wire import state
from node.wire.commands import NodeError
from protocol.link import Pair
from protocol.reader import FormatError, document, parse

ADDRESS = "\0gradwire-replay"
"""An abstract socket, as that of the nfqueue daemon: it belongs to the network namespace, as the links do."""
FILE = state.FOLDER / "replay.json"


class Mark(NamedTuple):
    """What the file says."""

    process: int
    """Who changes links."""
    links: list[Pair]
    """Those of the cluster that traces change."""


def occupy(pairs: list[Pair]) -> socket.socket:
    """Be the one that changes links of this node from now on, until the socket is closed.

    Args:
        pairs: what to tell others of: the links that traces change.

    Raises:
        NodeError: another process is.
    """
    sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sign.bind(ADDRESS)
    except OSError as error:
        sign.close()
        raise NodeError(_words()) from error
    FILE.write_text(json.dumps(document(Mark(os.getpid(), pairs))))
    return sign


def pairs_now() -> list[Pair]:
    """The links of the cluster that traces may change at the moment."""
    mark = _read() if _is_occupied() else None
    return mark.links if mark else []


def refuse() -> None:
    """Refuse to touch links that traces change.

    Raises:
        NodeError: they do.
    """
    if _is_occupied():
        raise NodeError(_words())


def fault() -> str:
    """What is wrong with the links if a replay could not put them back; empty if nothing is."""
    if FILE.exists() and not _is_occupied():
        return "a trace was cut off here, and links have its last values: apply the plan again"
    return ""


def forget() -> None:
    """The links are as a plan wants them."""
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
    """What the file says; None while it is about to come, or to go."""
    try:
        return parse(Mark, FILE.read_text())
    except (OSError, FormatError):
        return None
