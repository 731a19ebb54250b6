"""Writes and reads the order that `Trainer.fit` gives to the ranks that it starts: protocol/fit_order.py.

Nothing here imports torch, because a rank reads the order first.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from protocol.fit_order import ORDER_FILE, EarlierFit, FitOrder, model_file
from protocol.places import RESUME_FOLDER
from protocol.rank_variables import FIT
from protocol.reader import document, parse


class RankDone(SystemExit):
    """The end of a rank that has trained: no line of the script after fit runs in it."""


def checkpoints_to_resume(order: FitOrder, backend: str) -> Path | None:
    """Return the folder in which a rank finds the checkpoints to resume from; None if there are none.

    Ranks use this and not the script's `resume` argument: `trainer.run_folder` is None in a rank.
    """
    if not order.resume:
        return None
    sent = Path(os.environ[FIT]).parent / RESUME_FOLDER
    return sent if backend == "cluster" else Path(order.resume)


def write_fit_order(order: FitOrder, folder: Path) -> None:
    """Write the order into an existing folder, with copies of the models of earlier fits."""
    ended = []
    for number, one in enumerate(order.ended, 1):
        ended.append(one if one.error else EarlierFit(model_file(number)))
        if not one.error:
            shutil.copyfile(one.what, folder / model_file(number))
    (folder / ORDER_FILE).write_text(json.dumps(document(order._replace(ended=ended))))


def read_fit_order(environ: Mapping[str, str]) -> FitOrder | None:
    """Return the order that this rank runs under; None if fit did not start this process.

    Raises:
        FormatError: the file is not an order.
    """
    if FIT not in environ:
        return None
    return parse(FitOrder, (Path(environ[FIT]) / ORDER_FILE).read_text(), ORDER_FILE)
