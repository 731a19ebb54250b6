"""The contents of a checkpoint: written and read by node/training/checkpoint.py, and by learners."""

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from torch import Tensor


class Saved(TypedDict, total=False):
    """One rank's checkpoint. A learner's has the keys up to `task`."""

    settings: dict[str, object]
    """The settings that decide the numbers of a run: `TrainConfig.decisive`."""
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
    torch: "Tensor"
    """State of torch's random generator."""
    cuda: "Tensor | None"
    """State of the GPU's random generator; None if the rank has no GPU."""
    python: tuple[Any, ...]
    """State of Python's random generator."""
