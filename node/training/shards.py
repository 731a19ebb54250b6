"""Data sharding: which samples a rank takes in a step: evenly mixed, always the same, or skewed by class.

An epoch ends with its last full step (see batch_samples). Torch's DistributedSampler keeps the samples that are left
over, and uses some twice.
"""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from node.base.options import OptionError
from node.training.config import TrainConfig

TRIES = 1000  # draws at most, until every rank has a batch


class Shard(Protocol):
    """The samples that one rank trains on.

    Attributes:
        size: number of this rank's samples.
    """

    size: int

    def take(self, step: int) -> Tensor:
        """Return the sample numbers of a step, from 1; int64, shape (batch,)."""


def make_shard(
    config: TrainConfig, size: int, labels: Tensor | None, *, own_samples: bool = False
) -> Shard:
    """Return this rank's shard of `size` samples with these classes; all of them if they are its own.

    Raises:
        OptionError: the shard is too small, or there are no classes to skew by.
    """
    rank, world_size = config.ranks.rank, config.ranks.world_size
    a_step = config.batch_size * config.accumulate
    if own_samples:
        if a_step > size:
            raise OptionError(f"--batch-size: rank {rank} wants more than its {size} samples")
        # Ranks with the same number of samples must not all take theirs in the same order.
        return OwnShard(torch.arange(size), config.seed + 10_007 * rank, a_step)
    if world_size * a_step > size:
        raise OptionError(
            f"--batch-size: {world_size} ranks want more than {size} samples for a step"
        )
    if config.shard == "iid":
        return EvenShard(size, config.seed, rank, world_size, a_step)
    if config.shard == "fixed":
        return OwnShard(even_parts(size, world_size, config.seed)[rank], config.seed, a_step)
    if labels is None:
        raise OptionError(f"--shard {config.shard}: the samples of {config.task} have no classes")
    shards = dirichlet_shards(labels, world_size, config.alpha, config.seed, a_step)
    return OwnShard(shards[rank], config.seed, a_step)


class EvenShard:
    """An even share of all samples, a different one each epoch: see batch_samples."""

    def __init__(self, size: int, seed: int, rank: int, world_size: int, batch_size: int) -> None:
        self.size = size // world_size
        self._of = (rank, world_size, batch_size)
        self._all = (size, seed)

    def take(self, step: int) -> Tensor:
        """Return the sample numbers of a step."""
        return batch_samples(*self._all, step, *self._of)


class OwnShard:
    """Samples that stay with this rank, in a new order each epoch.

    Args:
        samples: their numbers, at least batch_size.
        seed: decides the order.
        batch_size: samples per step.
    """

    def __init__(self, samples: Tensor, seed: int, batch_size: int) -> None:
        self.size = len(samples)
        self._samples = samples
        self._seed = seed
        self._batch_size = batch_size

    def take(self, step: int) -> Tensor:
        """Return the sample numbers of a step."""
        places = batch_samples(self.size, self._seed, step, 0, 1, self._batch_size)
        return self._samples[places]


def batch_samples(
    size: int, seed: int, step: int, rank: int, world_size: int, batch_size: int
) -> Tensor:
    """Return the training samples that a rank takes in one step.

    All ranks draw the same permutation per epoch. A step takes its next world_size · batch_size samples, and rank r
    takes the r-th part of these. So within an epoch no sample is used twice on any rank, and N ranks with batch B
    together see exactly what one process with batch N·B sees. The rest of an epoch that does not fill a step is
    dropped.

    Args:
        size: number of training samples, at least world_size · batch_size.
        seed: decides the order.
        step: 1 for the first step.
        rank: this rank.
        world_size: number of ranks.
        batch_size: samples per rank.

    Returns:
        Sample numbers, int64, shape (batch_size,).
    """
    together = world_size * batch_size
    epoch, position = divmod(step - 1, size // together)
    start = position * together + rank * batch_size
    return _order(size, seed, epoch)[start : start + batch_size]


@lru_cache(maxsize=1)
def _order(size: int, seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1_000_003 * epoch)
    return torch.randperm(size, generator=generator)


def even_parts(size: int, ranks: int, seed: int) -> list[Tensor]:
    """Deal out all samples at random: the sample numbers of each rank, whose counts differ by at most one."""
    return list(_order(size, seed, 0).tensor_split(ranks))


def dirichlet_shards(
    labels: Tensor, ranks: int, alpha: float, seed: int, least: int
) -> list[Tensor]:
    """Assign every sample to exactly one rank, each class in shares drawn from Dirichlet(alpha).

    The smaller alpha is, the fewer classes make up most of a rank's samples, and the more ranks differ in size: the
    skew of Hsu, Qi and Brown (2019, arXiv 1909.06335). They draw the classes of each rank; this draws the ranks of
    each class (Yurochkin et al., 2019, arXiv 1905.12022), so that no sample is left over. The draw is repeated until
    every rank has at least `least` samples.

    Args:
        labels: the class of every sample, int64, shape (samples,).
        ranks: number of ranks.
        alpha: above 0.
        seed: the same on every rank.
        least: samples that each rank needs.

    Returns:
        Sample numbers, ascending, for each rank.

    Raises:
        OptionError: none of TRIES draws gives every rank that many.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    classes = [order[labels[order] == label] for label in labels.unique().tolist()]
    draw = random.Random(f"{seed} shards")
    for _ in range(TRIES):
        cuts = [_cuts(_shares(draw, alpha, ranks), len(members)) for members in classes]
        sizes = [sum(cut[rank + 1] - cut[rank] for cut in cuts) for rank in range(ranks)]
        if min(sizes) >= least:
            pairs = list(zip(classes, cuts, strict=True))
            return [
                torch.cat([members[cut[r] : cut[r + 1]] for members, cut in pairs]).sort().values
                for r in range(ranks)
            ]
    raise OptionError(
        f"--alpha {alpha:g} leaves one of {ranks} ranks without {least} samples, a step's worth: "
        "raise it, or lower --batch-size"
    )


def _shares(draw: random.Random, alpha: float, count: int) -> list[float]:
    """Return one draw from a symmetric Dirichlet distribution."""
    gammas = [draw.gammavariate(alpha, 1) for _ in range(count)]
    total = sum(gammas)
    if total == 0:  # all underflowed: one rank gets everything
        winner = draw.randrange(count)
        return [float(n == winner) for n in range(count)]
    return [gamma / total for gamma in gammas]


def _cuts(shares: Sequence[float], size: int) -> list[int]:
    """Return the bounds that cut `size` samples into these shares: from 0 to size, one more than shares."""
    sums = [sum(shares[: n + 1]) for n in range(len(shares) - 1)]
    return [0, *(min(size, round(part * size)) for part in sums), size]
