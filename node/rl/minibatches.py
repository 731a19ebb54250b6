"""What is drawn for a rollout: the noise of its actions, and which samples each minibatch takes.

All ranks draw for all environments, and each takes the columns of its own. So one rank and several, with the same
environments in all, make the same steps: nothing depends on how environments are dealt out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

APART = 1_000_003


def action_noise(
    seed: int, rollout: int, shape: tuple[int, int, int], *, uniform: bool, numbers: Sequence[int]
) -> Tensor:
    """Noise for all actions of a rollout.

    Args:
        seed: the run's.
        rollout: which, from 0.
        shape: steps, environments of all ranks, numbers an action takes.
        uniform: from 0 to 1, for actions to choose from; otherwise normal.
        numbers: this rank's environments.

    Returns:
        Shape (steps, this rank's environments, numbers an action takes).
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
    """Which samples of a rollout each minibatch of an epoch takes: of each environment as many, drawn anew.

    Args:
        seed: the run's.
        rollout: which, from 0.
        epoch: of this rollout's, from 0.
        steps: of the rollout, a multiple of `count`.
        environments: of all ranks.
        count: minibatches.
        numbers: this rank's environments.

    Returns:
        Sample numbers, step · (this rank's environments) + place among these; int64, shape (count, samples).
    """
    generator = torch.Generator().manual_seed(seed + APART * (2 * rollout + 2) + 7919 * epoch)
    order = torch.rand(steps, environments, generator=generator).argsort(0)[:, list(numbers)]
    samples = order * len(numbers) + torch.arange(len(numbers))
    return samples.view(count, -1)
