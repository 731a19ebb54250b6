"""How far the clocks of the nodes' hosts were ahead of this machine's when a run began: clocks.json of its folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from protocol.reader import read, within
from protocol.values import Name

CLOCKS = "clocks.json"
MOST_BYTES = 1 << 20
MOST_AHEAD_S = 1e10  # a clock of 1970, or far beyond any that works


class HostClock(NamedTuple):
    """The clock of a node's host.

    Attributes:
        ahead_s: how far it was ahead of this machine's, in seconds; negative: behind.
        error_s: how far that may be wrong, in seconds: half the round trip of the question.
    """

    ahead_s: Annotated[float, within(-MOST_AHEAD_S, MOST_AHEAD_S)]
    error_s: Annotated[float, within(0.0, MOST_AHEAD_S)]

    @property
    def correction_s(self) -> float:
        """What its times are ahead by for certain; 0 if that may be an error of measuring."""
        return self.ahead_s if abs(self.ahead_s) > self.error_s else 0.0

    @property
    def left_s(self) -> float:
        """How far its times may still be off once they are corrected."""
        return abs(self.ahead_s - self.correction_s) + self.error_s


Clocks = Mapping[str, HostClock]
"""The clock of each node whose host's was measured, by node."""


def read_clocks(folder: Path) -> dict[str, HostClock]:
    """Return the clocks that a run's folder has; none if they were not measured, or the file is damaged."""
    path = folder / CLOCKS
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        return read(dict[Name, HostClock], json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):  # includes FormatError
        return {}


def correction_of(clocks: Clocks, rank: str) -> float:
    """Return how many seconds the times of a rank (node2, node2-1) or node are ahead of this machine's clock."""
    clock = clocks.get(rank.partition("-")[0])
    return clock.correction_s if clock else 0.0
