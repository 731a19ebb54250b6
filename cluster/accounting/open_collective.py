"""The collective that a rank of node.train is in, from the note that it keeps (node/accounting/ledger.py). Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenCollective:
    """The number of collectives that a rank of node.train has begun, and the one under way.

    Attributes:
        begun: the number of those that concern all ranks, this one included.
        words: the one under way; empty if there is none.
        began_at: when that one began, Unix time.
    """

    begun: int
    words: str = ""
    began_at: float = 0.0


def read_collective(note: str) -> OpenCollective | None:
    """Parse a note: number begun, number under way, then kind, bytes, purpose, step, time; return None if it is empty.

    Raises:
        ValueError: it is malformed.
    """
    if not note:
        return None
    begun, under_way, kind, size, purpose, step, began_at = note.split()
    if int(under_way) == 0:
        return OpenCollective(int(begun))
    words = f"{kind[:20]} of {int(size) / 1e6:.3g} MB ({purpose[:10]}, step {int(step)})"
    return OpenCollective(int(begun), words, float(began_at))
