"""A task of the user's own (`--task ./mine.py:make_task`): a function that makes a model and two datasets.

    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Line(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

        def forward(self, batch):
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)


    def make_task(width: int = 16):
        x = torch.randn(1000, 4)
        data = TensorDataset(x, x.sum(1, keepdim=True))
        train, val = torch.utils.data.random_split(data, [900, 100])
        return Line(width), train, val

As in EXO Gym, the model computes its own loss: `model(batch)` is a tensor of one number. dataset_task.py says what a
dataset is. The function's parameters are the task's options, typed by their defaults; a parameter named data_dir gets
the value of --data-dir.
"""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from node.base.options import KINDS, OptionError, option
from node.base.user_code import place_of
from node.tasks.dataset_task import DatasetTask, line_of


class UserTask(DatasetTask):
    """A task made by the user's function; the options of each are fields of a class of its own."""

    function: ClassVar[Callable[..., Any]]

    def load(self, data_dir: Path | None) -> None:
        """Call the function and check what it returns."""
        function = type(self).function
        values = dataclasses.asdict(self)  # type: ignore[call-overload]
        if "data_dir" in inspect.signature(function).parameters:
            values["data_dir"] = data_dir
        try:
            made = function(**values)
        except Exception as error:
            raise OptionError(f"{place_of(error)}: {type(error).__name__}: {error}") from None
        self.take(line_of(function), made)


# The function's values are read before `take` sets these.
REPLACED = ("labels", "own_samples", "train_size")


def make_user_task(name: str, function: Callable[..., Any]) -> type[UserTask]:
    """Return a task class for a function, with the function's parameters as its options.

    Raises:
        OptionError: a parameter cannot be an option.
    """
    fields: list[tuple[str, type, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "data_dir":
            continue
        default = parameter.default
        where = f"{line_of(function)}: {parameter.name}"
        if _is_of_every_task(parameter.name):
            raise OptionError(f"{where} is a name of every task's own: call it something else")
        if default is inspect.Parameter.empty:
            raise OptionError(f"{where} has no default: write {parameter.name}=20, say")
        if type(default) not in KINDS:
            raise OptionError(f"{where} must be {', '.join(KINDS.values())}, not {default!r}")
        fields.append((parameter.name, type(default), option(default, "")))
    cls = dataclasses.make_dataclass(
        "UserTask", fields, bases=(UserTask,), namespace={"function": staticmethod(function)}
    )
    cls.__doc__ = inspect.getdoc(function) or name
    return cls


def _is_of_every_task(name: str) -> bool:
    """Return whether an option of this name would hide a method or attribute of the task."""
    return name == "function" or (hasattr(UserTask, name) and name not in REPLACED)
