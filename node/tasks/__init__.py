"""Tasks by name: a model and its data. A new one is a file here (see base.py), a line in TASKS."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.tasks.base import Task

TASKS = {"fashion-mnist": "node.tasks.fashion_mnist:FashionMnist"}


def make_task(name: str, data_dir: Path | None, dropout: float) -> "Task":
    """The task of this name, one of TASKS, with its data loaded.

    Raises:
        OptionError: its data is not there.
    """
    module, _, attribute = TASKS[name].partition(":")
    task: Task = getattr(importlib.import_module(module), attribute)(data_dir, dropout)
    return task
