"""The interface of a task: a model, its training samples by number, a loss and a test.

A new one is a dataclass whose fields are its options, in a file here or in your own. Shorter, in a
file of your own, is a function (user_task.py). Those that ship with us import torch only where they
compute: options are checked where there is no torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from node.base.options import Value
from node.tasks.saved import Saved

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from node.dist.comm import Comm


@dataclass(frozen=True)
class RunPart:
    """Which part of which run a rank is.

    Attributes:
        rank: this one.
        world_size: how many there are.
        seed: the same on all of them.
        steps: of the whole run.
    """

    rank: int
    world_size: int
    seed: int
    steps: int


class AnyTask:
    """What `--task` names: a dataclass whose fields are its options.

    Attributes:
        settled: flags of node.train that the task decides itself, by name, and by what of its options.
        essential_ranks: those without which a run cannot go on; None: all.
    """

    settled: ClassVar[Mapping[str, str]] = {}
    essential_ranks: ClassVar[tuple[int, ...] | None] = None

    @property
    def needed_packages(self) -> Mapping[str, str]:
        """Python packages that the node image has only where it was asked for them, each with what needs it."""
        return {}

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """Defaults of options that depend on others, of which these are set.

        Raises:
            OptionError: one of those cannot be.
        """
        return {}

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Flags of node.train that are not its own defaults, by name: `batch_size`, say. Wants no torch.

        Raises:
            OptionError: so many ranks cannot do this task.
        """
        return {}


class Task(AnyTask, ABC):
    """Model and data, the same on every rank. A batch is whatever `batch` makes and `loss` takes.

    Attributes:
        train_size: how many training samples there are, once they are loaded.
        labels: the class of each of them, int64, shape (train_size,); None where they have none.
        own_samples: whether they are this rank's alone; others are dealt out.
        regroups: whether another number of ranks can go on from its checkpoints, by `regroup`.
    """

    train_size: int
    labels: "Tensor | None" = None
    own_samples: bool = False
    regroups: ClassVar[bool] = False

    @abstractmethod
    def load(self, data_dir: Path | None) -> None:
        """Read the data; `data_dir` is what the user said of where it is.

        Raises:
            OptionError: it is not there.
        """

    def begin(self, part: RunPart) -> None:
        """Called once the data are there, before `train_size` is asked for."""
        return

    def fingerprint(self) -> bytes:
        """What tells these data from others: ranks whose data differ do not start."""
        return str(self.train_size).encode()

    @abstractmethod
    def make_model(self) -> "nn.Module":
        """A new model, initialised from torch's global random generator."""

    def prepare(self, step: int, model: "nn.Module", comm: "Comm") -> Mapping[str, Value]:
        """Called before each step, on all ranks: whoever makes data while training makes them here.

        Returns:
            Figures for a line of metrics; none: nothing to tell.
        """
        return {}

    def samples(self, step: int) -> "Tensor | None":
        """The numbers of the samples of a step, where the task itself decides; int64, shape (batch,)."""
        return None

    @abstractmethod
    def batch(self, samples: "Tensor", device: "torch.device") -> Any:  # noqa: ANN401
        """The training samples with these numbers (int64, shape (batch,)), on `device`."""

    @abstractmethod
    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":  # noqa: ANN401
        """The mean loss over the samples of a batch, shape ()."""

    @abstractmethod
    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Figures on held-out data: `test_loss`, say. Called in eval mode, no gradients."""

    def statistics(self, model: "nn.Module") -> "Sequence[Tensor]":
        """Buffers that training changes and a test depends on, beside those of batch norms."""
        return []

    def state(self) -> dict[str, object]:
        """What else a checkpoint must hold for `load_state`: numbers, texts, tensors, and dicts and lists of them."""
        return {}

    def load_state(self, state: dict[str, object]) -> None:
        """Go on from what `state` gave."""
        return

    def regroup(self, states: Sequence[Saved], together: Saved) -> dict[str, object]:
        """What `load_state` takes on this rank, of the checkpoints of all the ranks that there were.

        Args:
            states: by rank (docs/formats.md).
            together: this rank's to be: the step, and means of parameters and what the optimiser keeps. Statistics
                of the model that are no means are mended here.
        """
        raise NotImplementedError
