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

As in EXO Gym the model computes its own loss: `model(batch)` is a tensor of one number. A dataset
has a length and gives a sample by its number, as those of torch.utils.data do; samples become a
batch by torch's default_collate. The function's parameters are the task's options, typed by their
defaults; one that is called data_dir gets what --data-dir says.
"""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from node.load import place_of
from node.options import KINDS, OptionError, option
from node.tasks.base import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TEST_BATCH = 64
PARTS = ("model", "train_dataset", "val_dataset")


class OwnTask(Task):
    """What the user's function returned; each one's options are fields of a class of its own."""

    function: ClassVar[Callable[..., Any]]

    def load(self, data_dir: Path | None) -> None:
        """Call the function, and check what comes back."""
        function = type(self).function
        values = dataclasses.asdict(self)  # type: ignore[call-overload]
        if "data_dir" in inspect.signature(function).parameters:
            values["data_dir"] = data_dir
        try:
            made = function(**values)
        except Exception as error:
            raise OptionError(f"{place_of(error)}: {type(error).__name__}: {error}") from None
        self._model, self._train, self._held_out = self._checked(made)
        self.train_size = len(self._train)
        self.labels = self._labels()

    def make_model(self) -> "nn.Module":
        """The function's model."""
        return self._model

    def batch(self, samples: "Tensor", device: "torch.device") -> Any:  # noqa: ANN401
        """These samples, collated."""
        return _collate(self._train, samples.tolist(), device)

    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":  # noqa: ANN401
        """What the model says."""
        import torch

        loss = model(batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise OptionError(
                f"{_line(type(model).forward)}: forward(batch) must return its loss, a tensor of "
                f"one number, not {_describe(loss)}"
            )
        return loss.squeeze()

    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """`validation_loss`, the mean over all samples of val_dataset."""
        total, size = 0.0, len(self._held_out)
        for start in range(0, size, TEST_BATCH):
            numbers = list(range(start, min(size, start + TEST_BATCH)))
            loss = self.loss(model, _collate(self._held_out, numbers, device))
            total += float(loss) * len(numbers)
        return {"validation_loss": total / size}

    def _checked(self, made: object) -> tuple[Any, Any, Any]:
        from torch import nn

        where = _line(type(self).function)
        if not isinstance(made, tuple | list) or len(made) != len(PARTS):
            raise OptionError(f"{where}: must return {', '.join(PARTS)}, not {_describe(made)}")
        model, *datasets = made
        if not isinstance(model, nn.Module):
            raise OptionError(f"{where}: model must be a torch.nn.Module, not {_describe(model)}")
        for name, dataset in zip(PARTS[1:], datasets, strict=True):
            missing = [m for m in ("__len__", "__getitem__") if not hasattr(dataset, m)]
            if missing:
                raise OptionError(f"{where}: {name} has no {' and no '.join(missing)}")
            if not len(dataset):
                raise OptionError(f"{where}: {name} is empty")
        return model, *datasets

    def _labels(self) -> "Tensor | None":
        """The dataset's `targets` (torchvision's word) or `labels`, if it has whole numbers there."""
        import torch

        for name in ("targets", "labels"):
            values = getattr(self._train, name, None)
            if values is not None and len(values) == self.train_size:
                labels = torch.as_tensor(values)
                return labels.long() if not labels.is_floating_point() else None
        return None


def own_task(name: str, function: Callable[..., Any]) -> type[OwnTask]:
    """A class of task for a function, its options as fields.

    Raises:
        OptionError: a parameter of it cannot be an option.
    """
    fields: list[tuple[str, type, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "data_dir":
            continue
        default = parameter.default
        where = f"{_line(function)}: {parameter.name}"
        if default is inspect.Parameter.empty:
            raise OptionError(f"{where} has no default: write {parameter.name}=20, say")
        if type(default) not in KINDS:
            raise OptionError(f"{where} must be {', '.join(KINDS.values())}, not {default!r}")
        fields.append((parameter.name, type(default), option(default, "")))
    cls = dataclasses.make_dataclass(
        "OwnTask", fields, bases=(OwnTask,), namespace={"function": staticmethod(function)}
    )
    cls.__doc__ = inspect.getdoc(function) or name
    return cls


def _collate(dataset: Any, numbers: list[int], device: "torch.device") -> Any:  # noqa: ANN401
    from torch.utils.data import default_collate

    return _move(default_collate([dataset[number] for number in numbers]), device)


def _move(batch: Any, device: "torch.device") -> Any:  # noqa: ANN401
    """All tensors of a batch to the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_move(value, device) for value in batch]
    return batch


def _line(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _describe(thing: object) -> str:
    """What it is, short."""
    if isinstance(thing, tuple | list):
        return f"{len(thing)} things"
    shape = f" of shape {tuple(thing.shape)}" if hasattr(thing, "shape") else ""
    return f"{type(thing).__name__}{shape}"
