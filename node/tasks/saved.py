"""What a checkpoint holds: written and read by node/training/checkpoint.py, and by learners."""

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from torch import Tensor


class Saved(TypedDict, total=False):
    """One rank's checkpoint. Those of learners end with `task`."""

    settings: dict[str, object]
    """What decides the numbers of a run: `TrainConfig.decisive`."""
    step: int
    """After which it was written."""
    model: "dict[str, Tensor]"
    """Its parameters and buffers."""
    optimizer: dict[str, object]
    """As the optimiser's `state_dict` has it."""
    task: dict[str, Any]
    """What the task gave: `Task.state`. Its shape is the task's own."""
    strategy: dict[str, tuple[str, Any]]
    """What the strategy remembered: node/training/strategy_state.py."""
    kept: "dict[int, list[Tensor]]"
    """Parameters that are still to be tested, by step."""
    torch: "Tensor"
    """State of torch's random generator."""
    cuda: "Tensor | None"
    """State of the GPU's; None where the rank has none."""
    python: tuple[Any, ...]
    """State of Python's."""
