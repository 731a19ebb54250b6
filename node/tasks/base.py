"""The interface of a task: a model, its training samples by number, a loss and a test.

A new one is a dataclass whose fields are its options, in a file here or in your own. Shorter, in a
file of your own, is a function (user_task.py). Those that ship with us import torch only where they
compute: options are checked where there is no torch.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Task(ABC):
    """Model and data, the same on every rank. A batch is whatever `batch` makes and `loss` takes.

    Attributes:
        train_size: how many training samples there are, once they are loaded.
        labels: the class of each of them, int64, shape (train_size,); None where they have none.
        own_samples: whether they are this rank's alone; others are dealt out.
    """

    train_size: int
    labels: "Tensor | None" = None
    own_samples: bool = False

    @abstractmethod
    def load(self, data_dir: Path | None) -> None:
        """Read the data; `data_dir` is what the user said of where it is.

        Raises:
            OptionError: it is not there.
        """

    def fingerprint(self) -> bytes:
        """What tells these data from others: ranks whose data differ do not start."""
        return str(self.train_size).encode()

    @abstractmethod
    def make_model(self) -> "nn.Module":
        """A new model, initialised from torch's global random generator."""

    @abstractmethod
    def batch(self, samples: "Tensor", device: "torch.device") -> Any:  # noqa: ANN401
        """The training samples with these numbers (int64, shape (batch,)), on `device`."""

    @abstractmethod
    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":  # noqa: ANN401
        """The mean loss over the samples of a batch, shape ()."""

    @abstractmethod
    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Figures on held-out data: `test_loss`, say. Called in eval mode, no gradients."""
