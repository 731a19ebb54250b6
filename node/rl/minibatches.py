"""The random draws of a rollout: the noise of its actions, and the samples of each minibatch.

All ranks draw for all environments, and each takes the columns of its own. So one rank and several ranks with the
same environments in total make the same steps: nothing depends on how environments are dealt out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

APART = 1_000_003


def action_noise(
    seed: int, rollout: int, shape: tuple[int, int, int], *, uniform: bool, numbers: Sequence[int]
) -> Tensor:
    """Return the noise for all actions of a rollout.

    Args:
        seed: the run's.
        rollout: number of the rollout, from 0.
        shape: steps, environments of all ranks, numbers that an action takes.
        uniform: whether noise is uniform from 0 to 1, for discrete actions; otherwise it is normal.
        numbers: this rank's environments.

    Returns:
        Shape (steps, this rank's environments, numbers that an action takes).
    """
    generator = torch.Generator().manual_seed(seed + APART * (2 * rollout + 1))
    draw = torch.rand if uniform else torch.randn
    return draw(shape, generator=generator)[:, list(numbers)]


def minibatches(
    seed: int,
    rollout: int,
    epoch: int,
    steps: int,
    environments: int,
    count: int,
    numbers: Sequence[int],
) -> Tensor:
    """Return the samples of each minibatch of an epoch: the same number of each environment, drawn anew.

    Args:
        seed: the run's.
        rollout: number of the rollout, from 0.
        epoch: number of the epoch in this rollout, from 0.
        steps: steps of the rollout, a multiple of `count`.
        environments: number of environments of all ranks.
        count: number of minibatches.
        numbers: this rank's environments.

    Returns:
        Sample numbers, step · (this rank's environments) + place among these; int64, shape (count, samples).
    """
    generator = torch.Generator().manual_seed(seed + APART * (2 * rollout + 2) + 7919 * epoch)
    order = torch.rand(steps, environments, generator=generator).argsort(0)[:, list(numbers)]
    samples = order * len(numbers) + torch.arange(len(numbers))
    return samples.view(count, -1)
