"""A task made of a model that computes its own loss, and two datasets.

A dataset has a length and returns a sample by its number, like those of torch.utils.data; torch's default_collate
makes samples into a batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.base.options import OptionError
from node.tasks.base import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TEST_BATCH = 64
READS = 8  # of a sample: one of two values is hardly the same each time by chance
PARTS = ("model", "train_dataset", "val_dataset")


class DatasetTask(Task):
    """A task on the model and the datasets that `take` received."""

    def take(
        self,
        where: str,
        parts: object,
        *,
        val_size: int | None = None,
        own_samples: bool = False,
        own_held_out: bool = False,
    ) -> None:
        """Check a model and its datasets, and keep them.

        Args:
            where: where they come from, for error messages.
            parts: a model and two datasets, as in PARTS.
            val_size: number of samples of val_dataset to test on, its first ones; None: all.
            own_samples: whether the training samples belong to this rank alone.
            own_held_out: whether val_dataset does. Ranks need not have the same one, as only rank 0 tests.

        Raises:
            OptionError: they cannot be trained.
        """
        self._model, self._train, self._held_out = _checked(where, parts)
        self._test_size = min(val_size or len(self._held_out), len(self._held_out))
        self.own_samples = own_samples
        self._own_held_out = own_held_out
        self.train_size = len(self._train)
        self.labels = self._labels()

    def load(self, data_dir: Path | None) -> None:
        """Do nothing: the data are in memory."""

    def fingerprint(self) -> bytes:
        """Return sizes, classes, the indices that a split chose, and the first sample if it is the same each time.

        The other samples may differ unnoticed, and so may a val_dataset that is the rank's own. Empty if every rank
        has training samples of its own.
        """
        if self.own_samples:
            return b""
        sample, *others = {self._first_sample() for _ in range(READS)}
        return b" ".join([self.choice(), b"" if others else sample])

    def _first_sample(self) -> bytes:
        from node.tasks.draws import fixed_draws

        with fixed_draws():  # it may be augmented
            return _bytes(self._train[0])

    def choice(self) -> bytes:
        """Return sizes, chosen indices and classes as text, which is the same under any version of torch.

        Without those of a val_dataset that is the rank's own.
        """
        shared = [self._train] if self._own_held_out else [self._train, self._held_out]
        numbers = [_whole_numbers(getattr(data, "indices", None)) for data in shared]
        chosen = [[] if tensor is None else tensor.tolist() for tensor in numbers]
        labels = [] if self.labels is None else self.labels.tolist()
        return repr([*map(len, shared), chosen, labels]).encode()

    def make_model(self) -> "nn.Module":
        """Return the model that `take` received."""
        return self._model

    def batch(self, samples: "Tensor", device: "torch.device") -> Any:  # noqa: ANN401
        """Return these samples, collated."""
        return _collate(self._train, samples.tolist(), device)

    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":  # noqa: ANN401
        """Return the loss that the model computes."""
        import torch

        loss = model(batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise OptionError(
                f"{line_of(type(model).forward)}: forward(batch) must return its loss, a tensor of "
                f"one number, not {_describe(loss)}"
            )
        return loss.squeeze()

    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Return `validation_loss`, the mean over the samples of val_dataset that are tested on."""
        total = 0.0
        for start in range(0, self._test_size, TEST_BATCH):
            numbers = list(range(start, min(self._test_size, start + TEST_BATCH)))
            loss = self.loss(model, _collate(self._held_out, numbers, device))
            total += float(loss) * len(numbers)
        return {"validation_loss": total / self._test_size}

    def _labels(self) -> "Tensor | None":
        """Return the dataset's `targets` (torchvision's word) or `labels`, if these are whole numbers; else None."""
        for name in ("targets", "labels"):
            labels = _whole_numbers(getattr(self._train, name, None))
            if labels is not None and labels.shape == (self.train_size,):
                return labels
        return None


def line_of(function: Callable[..., Any]) -> str:
    """Return the file and line where a function begins."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _checked(where: str, parts: object) -> tuple[Any, Any, Any]:
    from torch import nn

    if not isinstance(parts, tuple | list) or len(parts) != len(PARTS):
        raise OptionError(f"{where}: must return {', '.join(PARTS)}, not {_describe(parts)}")
    model, *datasets = parts
    if not isinstance(model, nn.Module):
        raise OptionError(f"{where}: model must be a torch.nn.Module, not {_describe(model)}")
    for name, dataset in zip(PARTS[1:], datasets, strict=True):
        missing = [m for m in ("__len__", "__getitem__") if not hasattr(dataset, m)]
        if missing:
            raise OptionError(f"{where}: {name} has no {' and no '.join(missing)}")
        if not len(dataset):
            raise OptionError(f"{where}: {name} is empty")
    return model, *datasets


def _collate(dataset: Any, numbers: list[int], device: "torch.device") -> Any:  # noqa: ANN401
    from torch.utils.data import default_collate

    return _move(default_collate([dataset[number] for number in numbers]), device)


def _move(batch: Any, device: "torch.device") -> Any:  # noqa: ANN401
    """Move all tensors of a batch to the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_move(value, device) for value in batch]
    return batch


def _whole_numbers(values: object) -> "Tensor | None":
    """Return the values as int64, in whatever form they are stored; None if they are not whole numbers."""
    import torch

    try:
        numbers = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):  # strings, a method, rows of different lengths
        return None
    return None if numbers.is_floating_point() or numbers.is_complex() else numbers.long()


def _bytes(sample: Any) -> bytes:  # noqa: ANN401
    """Return bytes that identify a sample."""
    import torch

    from node.dist.flat import to_bytes

    if isinstance(sample, torch.Tensor):
        return to_bytes([sample])
    if isinstance(sample, dict):
        return b"".join(_bytes(part) for part in sample.values())
    if isinstance(sample, tuple | list):
        return b"".join(map(_bytes, sample))
    return sample.tobytes() if hasattr(sample, "tobytes") else repr(sample).encode()


def _describe(thing: object) -> str:
    """Describe a value in a few words, for error messages."""
    if isinstance(thing, tuple | list):
        return f"{len(thing)} things"
    shape = f" of shape {tuple(thing.shape)}" if hasattr(thing, "shape") else ""
    return f"{type(thing).__name__}{shape}"
