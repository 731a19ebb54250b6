"""What a task is: a model, its training samples by number, a loss and a test."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn


class Task(ABC):
    """Model and data, the same on every rank. A batch is whatever `batch` makes and `loss` takes.

    Attributes:
        train_size: how many training samples there are.
    """

    train_size: int

    @abstractmethod
    def make_model(self) -> nn.Module:
        """A new model, initialised from torch's global random generator."""

    @abstractmethod
    def batch(self, samples: Tensor, device: torch.device) -> Any:  # noqa: ANN401
        """The training samples with these numbers (int64, shape (batch,)), on `device`."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:  # noqa: ANN401
        """The mean loss over the samples of a batch, shape ()."""

    @abstractmethod
    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Figures on the held-out data, at least `test_loss`. Called in eval mode, no gradients."""


def batch_samples(
    size: int, seed: int, step: int, rank: int, world_size: int, batch_size: int
) -> Tensor:
    """Which training samples a rank takes in one step.

    All ranks draw the same permutation an epoch. A step takes the next world_size · batch_size
    samples of it, rank r the r-th part of them. So within an epoch no sample is used twice by
    anyone, and N ranks with batch B see together exactly what one process with batch N·B sees. The
    rest of an epoch that does not fill a step is dropped.

    Args:
        size: number of training samples, at least world_size · batch_size.
        seed: decides the order.
        step: 1 for the first step.
        rank: this rank.
        world_size: number of ranks.
        batch_size: samples a rank.

    Returns:
        Sample numbers, int64, shape (batch_size,).
    """
    together = world_size * batch_size
    epoch, position = divmod(step - 1, size // together)
    start = position * together + rank * batch_size
    return _order(size, seed, epoch)[start : start + batch_size]


@lru_cache(maxsize=1)
def _order(size: int, seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1_000_003 * epoch)
    return torch.randperm(size, generator=generator)
