"""Writes and reads the order that `Trainer.fit` gives to the ranks that it starts: protocol/fit_order.py.

Nothing here imports torch: a rank reads it first.
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
    """This rank has trained: no line of the script after fit runs in it."""


def checkpoints_to_resume(order: FitOrder, backend: str) -> Path | None:
    """Where a rank finds the checkpoints to go on from; None: there are none.

    Ranks go by this and not by what the script says again: `trainer.run_folder` is None there.
    """
    if not order.resume:
        return None
    sent = Path(os.environ[FIT]).parent / RESUME_FOLDER
    return sent if backend == "cluster" else Path(order.resume)


def write_fit_order(order: FitOrder, folder: Path) -> None:
    """Write it into a folder that is there, with copies of the models of earlier fits."""
    ended = []
    for number, one in enumerate(order.ended, 1):
        ended.append(one if one.error else EarlierFit(model_file(number)))
        if not one.error:
            shutil.copyfile(one.what, folder / model_file(number))
    (folder / ORDER_FILE).write_text(json.dumps(document(order._replace(ended=ended))))


def read_fit_order(environ: Mapping[str, str]) -> FitOrder | None:
    """The order that this rank runs under; None where somebody else has started it.

    Raises:
        FormatError: it is none.
    """
    if FIT not in environ:
        return None
    return parse(FitOrder, (Path(environ[FIT]) / ORDER_FILE).read_text(), ORDER_FILE)
