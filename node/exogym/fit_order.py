"""The order that `Trainer.fit` gives to the ranks that it starts: a folder, docs/formats.md.

Nothing here imports torch: a rank reads it first.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ORDER = "GRADWIRE_FIT"  # a variable with the order's folder
INITIAL = "initial.pt"  # a file of it: the model's state before the first step
RESUME = ".resume"  # beside the order on a cluster's node: the checkpoints to go on from


class RankDone(SystemExit):
    """This rank has trained: no line of the script after fit runs in it."""


@dataclass(frozen=True)
class RankExit:
    """How an earlier fit of the script ended.

    Attributes:
        what: the file with the model's state, or the error's message.
        error: the error's class, OptionError or RuntimeError; empty: there was none.
    """

    what: str
    error: str = ""


@dataclass(frozen=True)
class FitOrder:
    """What the ranks of a fit are told.

    Attributes:
        fit: which call of fit in the script it is, from 1; those before it are not made again.
        seed: of torch's generator when the script began.
        data: what tells the samples from others (node/tasks/dataset_task.py); empty: unknown.
        ended: how the calls before it ended.
        resume: the run folder whose checkpoints it goes on from, where it was started; empty: none.
    """

    fit: int
    seed: int
    data: str
    ended: tuple[RankExit, ...] = ()
    resume: str = ""

    def checkpoints(self, backend: str) -> Path | None:
        """Where a rank of it finds those to go on from.

        Ranks go by this and not by what the script says again: `trainer.run_folder` is None there.
        """
        if not self.resume:
            return None
        sent = Path(os.environ[ORDER]).parent / RESUME
        return sent if backend == "cluster" else Path(self.resume)

    def write(self, folder: Path) -> None:
        """Into a folder that is there, with the models of earlier fits."""
        ended = []
        for number, one in enumerate(self.ended, 1):
            ended.append(one if one.error else RankExit(f"model-{number}.pt"))
            if not one.error:
                shutil.copyfile(one.what, folder / f"model-{number}.pt")
        document = asdict(replace(self, ended=tuple(ended)))
        (folder / "order.json").write_text(json.dumps(document))


def read_fit_order(environ: Mapping[str, str]) -> FitOrder | None:
    """The order that this rank runs under; None where somebody else has started it."""
    if ORDER not in environ:
        return None
    document = json.loads((Path(environ[ORDER]) / "order.json").read_text())
    ended = tuple(RankExit(**one) for one in document.pop("ended"))
    return FitOrder(**document, ended=ended)
