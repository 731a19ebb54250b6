"""The names of checkpoints: a rank of node.train leaves them in its run's folder; to resume, they go back to nodes."""

import re
from typing import NamedTuple

NAME = re.compile(r"checkpoint-rank(\d{1,6})-step(\d{1,18})\.pt", re.ASCII)


class CheckpointName(NamedTuple):
    """What the name of a checkpoint says of it."""

    rank: int
    """Whose it is."""
    step: int
    """After which step it was written."""

    def __str__(self) -> str:
        """As the file is called."""
        return f"checkpoint-rank{self.rank}-step{self.step}.pt"


def read_checkpoint_name(name: str) -> CheckpointName | None:
    """The rank and the step of a checkpoint; None where a file of this name is no checkpoint."""
    found = NAME.fullmatch(name)
    return CheckpointName(int(found[1]), int(found[2])) if found else None
