"""The names of checkpoints, which ranks of node.train write to the run's folder and a resumed run sends to nodes."""

import re
from typing import NamedTuple

NAME = re.compile(r"checkpoint-rank(\d{1,6})-step(\d{1,18})\.pt", re.ASCII)


class CheckpointName(NamedTuple):
    """The name of a checkpoint, in parts."""

    rank: int
    """The rank that wrote it."""
    step: int
    """The step after which it was written."""

    def __str__(self) -> str:
        """Return the file name."""
        return f"checkpoint-rank{self.rank}-step{self.step}.pt"


def read_checkpoint_name(name: str) -> CheckpointName | None:
    """Return the rank and the step of a checkpoint; None if this is not the name of a checkpoint."""
    found = NAME.fullmatch(name)
    return CheckpointName(int(found[1]), int(found[2])) if found else None
