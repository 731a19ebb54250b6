"""The contents of a checkpoint: written and read by node/training/checkpoint.py, and by learners."""

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from torch import Tensor


class SavedDraws(TypedDict, total=False):
    """The states of random generators: node/tasks/draws.py."""

    torch: "Tensor"
    """Of torch's."""
    cuda: "Tensor | None"
    """Of the GPU's; None if the rank has no GPU."""
    python: tuple[Any, ...]
    """Of Python's."""
    numpy: tuple[Any, ...] | None
    """Of numpy's global one; None, or missing, in a checkpoint of an earlier version."""


class Saved(SavedDraws, total=False):
    """One rank's checkpoint. A learner's has `settings`, `step`, `model`, `optimizer` and `task`."""

    settings: dict[str, object]
    """The settings that decide a run's numbers (`TrainConfig.decisive`), the task's own, and which data ranks share."""
    step: int
    """The step after which it was written."""
    model: "dict[str, Tensor]"
    """The model's parameters and buffers."""
    optimizer: dict[str, object]
    """The optimiser's `state_dict`."""
    task: dict[str, Any]
    """The result of `Task.state`; its shape is up to the task."""
    strategy: dict[str, tuple[str, Any]]
    """The state of the strategy: node/training/strategy_state.py."""
    kept: "dict[int, list[Tensor]]"
    """Parameters that are still to be tested, by step."""
