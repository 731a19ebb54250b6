"""The collective that a rank of node.train is in, by the note that it keeps (node/accounting/ledger.py). Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenCollective:
    """What a rank of node.train is in: how many that concern all ranks it has begun, and the one under way.

    Attributes:
        begun: how many of those, this one included.
        words: the one under way; empty where there is none.
        began_at: since when, Unix time.
    """

    begun: int
    words: str = ""
    began_at: float = 0.0


def read_collective(note: str) -> OpenCollective | None:
    """What a note says: how many begun, how many under way, then kind, bytes, purpose, step, time; None if empty.

    Raises:
        ValueError: it is none.
    """
    if not note:
        return None
    begun, under_way, kind, size, purpose, step, began_at = note.split()
    if int(under_way) == 0:
        return OpenCollective(int(begun))
    words = f"{kind[:20]} of {int(size) / 1e6:.3g} MB ({purpose[:10]}, step {int(step)})"
    return OpenCollective(int(begun), words, float(began_at))
