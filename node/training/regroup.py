"""Merges the checkpoints of several ranks into one from which another number of ranks can resume.

Parameters, optimiser state and copies that are still to be tested become the mean over the ranks; if all ranks have
the same (ddp), the mean is that. The task redistributes its own state. The strategy's state is dropped: the strategy
starts anew from the mean. Random generators start anew, too.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from node.tasks.base import Task
from node.tasks.saved import Saved


def regroup(states: Sequence[Saved], task: Task) -> Saved:
    """Return this rank's checkpoint, made from those of all earlier ranks, in their order."""
    together: Saved = {
        "step": states[0]["step"],
        "model": mean_of([state["model"] for state in states]),
        "optimizer": mean_of([state["optimizer"] for state in states]),
        "kept": mean_of([state["kept"] for state in states]),
    }
    together["task"] = task.regroup(states, together)
    return together


def mean_of(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the mean of float tensors at the same place of dicts and lists; anything else is the first rank's."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: mean_of([part[key] for part in parts]) for key in first}
    if isinstance(first, list):
        return [mean_of(each) for each in zip(*parts, strict=True)]
    if isinstance(first, Tensor) and first.is_floating_point():
        return torch.stack([part.double() for part in parts]).mean(0).to(first.dtype)
    return first
