"""The interface of a task: a model, training samples addressed by number, a loss and a test.

A new task is a dataclass whose fields are its options, in a file here or in your own. In your own file, a function is
a shorter form (user_task.py). The tasks here import torch only where they compute, because options are also checked
on machines without torch.
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
    """The place of a rank in its run.

    Attributes:
        rank: number of this rank.
        world_size: number of ranks.
        seed: the same on all ranks.
        steps: steps of the whole run.
    """

    rank: int
    world_size: int
    seed: int
    steps: int


class AnyTask:
    """A task as `--task` names it: a dataclass whose fields are its options.

    Attributes:
        settled: flags of node.train that the task decides itself, by name, each with what decides it.
        essential_ranks: ranks without which a run cannot go on; None: all.
    """

    settled: ClassVar[Mapping[str, str]] = {}
    essential_ranks: ClassVar[tuple[int, ...] | None] = None

    @property
    def needed_packages(self) -> Mapping[str, str]:
        """Python packages that the node image has only on request, each with the option that needs it."""
        return {}

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """Return the defaults of options that depend on other options; `settings` are the options that were set.

        Raises:
            OptionError: one of the settings is not possible.
        """
        return {}

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Return the task's own defaults of flags of node.train, by name, e.g. `batch_size`; does not need torch.

        Raises:
            OptionError: this many ranks cannot run the task.
        """
        return {}

    def check_batch(self, batch_size: int) -> None:
        """Check the size of a batch; does not need torch.

        Raises:
            OptionError: with its options the task never has so large a batch.
        """
        return


class Task(AnyTask, ABC):
    """A model and its data, the same on every rank. `batch` makes a batch of any type, `loss` takes it.

    Attributes:
        train_size: number of training samples; set by `load` or `begin`.
        labels: the class of each training sample, int64, shape (train_size,); None if samples have no classes.
        own_samples: whether the samples belong to this rank alone; otherwise they are sharded over the ranks.
        regroups: whether another number of ranks can resume from its checkpoints, through `regroup`.
    """

    train_size: int
    labels: "Tensor | None" = None
    own_samples: bool = False
    regroups: ClassVar[bool] = False

    @abstractmethod
    def load(self, data_dir: Path | None) -> None:
        """Read the data; `data_dir` is the location that the user gave.

        Raises:
            OptionError: the data are not there.
        """

    def begin(self, part: RunPart) -> None:
        """Prepare for the run. Called once the data are loaded, before `train_size` is read."""
        return

    def fingerprint(self) -> bytes:
        """Return bytes that identify the training data, as far as is cheap.

        Ranks whose bytes differ do not start, and a checkpoint with others is refused, except if own_samples is set.
        What the bytes do not hold (by default everything but the number of samples) may differ unnoticed.
        """
        return str(self.train_size).encode()

    def own_settings(self) -> Mapping[str, str]:
        """Return the settings that decide a run and are no options, as text; a checkpoint with others is refused."""
        return {}

    @abstractmethod
    def make_model(self) -> "nn.Module":
        """Return a new model, initialised from torch's global random generator."""

    def prepare(self, step: int, model: "nn.Module", comm: "Comm") -> Mapping[str, Value]:
        """Make new data, if the task makes data while training. Called before each step, on all ranks.

        Returns:
            Figures for one line of metrics; empty: no line.
        """
        return {}

    def samples(self, step: int) -> "Tensor | None":
        """Return the sample numbers of a step, int64, shape (batch,); None if the task does not decide them."""
        return None

    @abstractmethod
    def batch(self, samples: "Tensor", device: "torch.device") -> Any:  # noqa: ANN401
        """Return the training samples with these numbers (int64, shape (batch,)), on `device`."""

    @abstractmethod
    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":  # noqa: ANN401
        """Return the mean loss over the samples of a batch, shape ()."""

    @abstractmethod
    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Return figures on held-out data, e.g. `test_loss`. Called in eval mode, without gradients."""

    def statistics(self, model: "nn.Module") -> "Sequence[Tensor]":
        """Return the buffers that training changes and a test depends on, except those of batch norms."""
        return []

    def state(self) -> dict[str, object]:
        """Return what else a checkpoint must hold: numbers, strings, tensors, and dicts and lists of them."""
        return {}

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from what `state` returned."""
        return

    def regroup(self, states: Sequence[Saved], together: Saved) -> dict[str, object]:
        """Return this rank's input of `load_state`, made from the checkpoints of all ranks of the earlier run.

        Args:
            states: the checkpoints by rank (docs/formats.md).
            together: this rank's future checkpoint: the step, and the means of parameters and optimiser state. This
                method corrects those statistics of the model for which the mean is wrong.
        """
        raise NotImplementedError
