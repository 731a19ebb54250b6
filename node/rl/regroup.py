"""Deals environments out anew: of what each of several ranks had, the part of some environments, by their numbers."""

import json
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor


class CollectorState(TypedDict):
    """Where the environments of a rank are."""

    environments: str
    """JSON: how to come back to each of them."""
    counts: Tensor
    """Reward, length and discounted reward so far, by environment."""


def deal_environments(
    collectors: Sequence[CollectorState], numbers: Sequence[int]
) -> CollectorState:
    """What `Collector.load_state` takes.

    Args:
        collectors: what `Collector.state` gave, by rank.
        numbers: which of all environments, as they were dealt out to these ranks one after the other.
    """
    episodes = [one for state in collectors for one in json.loads(state["environments"])]
    counts = torch.cat([state["counts"] for state in collectors], 1)
    return {
        "environments": json.dumps([episodes[number] for number in numbers]),
        "counts": counts[:, list(numbers)],
    }


def deal_rollout(
    rollouts: Sequence[dict[str, Tensor]], steps: int, numbers: Sequence[int]
) -> dict[str, Tensor]:
    """The fields of a `Rollout` of so many steps, of each rank's by rank."""
    whole = {
        name: torch.cat([one[name].unflatten(0, (steps, -1)) for one in rollouts], 1)
        for name in rollouts[0]
    }
    return {name: tensor[:, list(numbers)].flatten(0, 1) for name, tensor in whole.items()}
