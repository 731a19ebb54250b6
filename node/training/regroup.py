"""One checkpoint out of those of several ranks, for another number of ranks to go on from.

Parameters, what the optimiser keeps of them, and what is still to be tested are the mean over the ranks: where they
have the same (ddp), that. The task deals out the rest anew. What the strategy remembered is left behind: it begins
anew, from the mean; and so do random generators.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from node.tasks.base import Task
from node.tasks.saved import Saved


def regroup(states: Sequence[Saved], task: Task) -> Saved:
    """This rank's checkpoint, of those of all the ranks that there were, in their order."""
    together: Saved = {
        "step": states[0]["step"],
        "model": mean_of([state["model"] for state in states]),
        "optimizer": mean_of([state["optimizer"] for state in states]),
        "kept": mean_of([state["kept"] for state in states]),
    }
    together["task"] = task.regroup(states, together)
    return together


def mean_of(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """The mean of float tensors that are in the same place of dicts and lists; of all else the first."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: mean_of([part[key] for part in parts]) for key in first}
    if isinstance(first, list):
        return [mean_of(each) for each in zip(*parts, strict=True)]
    if isinstance(first, Tensor) and first.is_floating_point():
        return torch.stack([part.double() for part in parts]).mean(0).to(first.dtype)
    return first
