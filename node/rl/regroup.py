"""Redistributes environments: selects some of them, by number, from the states of several ranks."""

import json
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor


class CollectorState(TypedDict):
    """The state of a rank's environments."""

    environments: str
    """JSON: how to restore each of them."""
    counts: Tensor
    """Reward, length and discounted reward so far, per environment."""


def deal_environments(
    collectors: Sequence[CollectorState], numbers: Sequence[int]
) -> CollectorState:
    """Return the input of `Collector.load_state` for some environments.

    Args:
        collectors: results of `Collector.state`, by rank.
        numbers: their numbers among all environments; each rank had a block of these, in rank order.
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
    """Return the fields of a `Rollout` of `steps` steps for some environments, from those of each rank."""
    whole = {
        name: torch.cat([one[name].unflatten(0, (steps, -1)) for one in rollouts], 1)
        for name in rollouts[0]
    }
    return {name: tensor[:, list(numbers)].flatten(0, 1) for name, tensor in whole.items()}
