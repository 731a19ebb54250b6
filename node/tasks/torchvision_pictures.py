"""MNIST (LeCun et al., 1998) and CIFAR-10 (Krizhevsky, 2009), in torchvision's layout on disk.

Nothing is downloaded: a node may have no way out, and a download would go over its own links.
"""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from node.base.options import OptionError
from node.tasks.pictures import Pictures

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_DIR = Path("data")


@dataclass
class Downloaded(Pictures):
    """Pictures of a dataset that torchvision can read and the user has downloaded."""

    name: ClassVar[str]  # in torchvision.datasets

    @abstractmethod
    def picture_bytes(self, dataset: Any) -> "Tensor":  # noqa: ANN401
        """Return all pictures of a dataset, uint8, shape (number, channels, side, side)."""

    def read(self, data_dir: Path | None, *, train: bool) -> "tuple[Tensor, Tensor]":
        """Return the pictures and their classes.

        Raises:
            OptionError: the files are not there; the message says how to get them.
        """
        import torch
        from torchvision import datasets

        folder = data_dir or DEFAULT_DIR
        try:
            dataset = getattr(datasets, self.name)(folder, train=train)
        except (RuntimeError, OSError, ValueError, EOFError):
            raise OptionError(
                f"no {self.name} in {folder}, or not all of it: python -c 'from torchvision.datasets "
                f'import {self.name} as D; D("data", download=True)\', and --data-dir names the '
                "folder on every node: an image of your own can have it (--image)"
            ) from None
        return self.picture_bytes(dataset), torch.as_tensor(dataset.targets).long()


@dataclass
class Mnist(Downloaded):
    """A small convolutional net on handwritten digits; needs --data-dir."""

    name = "MNIST"
    mean, std = (0.1307,), (0.3081,)

    def picture_bytes(self, dataset: Any) -> "Tensor":  # noqa: ANN401
        """Return all pictures, shape (number, 1, 28, 28)."""
        pictures: Tensor = dataset.data.unsqueeze(1)
        return pictures


@dataclass
class Cifar10(Downloaded):
    """A small convolutional net on 32 x 32 colour pictures; needs --data-dir."""

    name = "CIFAR10"
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    def picture_bytes(self, dataset: Any) -> "Tensor":  # noqa: ANN401
        """Return all pictures, shape (number, 3, 32, 32)."""
        import torch

        return torch.from_numpy(dataset.data).permute(0, 3, 1, 2).contiguous()
