"""Running means and variances of observations and returns, of one rank or of all together (Chan et al., 1979).

CleanRL and gymnasium add each observation as it comes; here a rollout is added when it is over, so that ranks can add
up theirs in one message.
"""

import torch
from torch import Tensor, nn

SMALL = 1e-8
LARGEST = 10.0  # standard deviations; values farther off are clipped to this


class Moments(nn.Module):
    """Mean and variance of all values added; kept in buffers, so that the model's file includes them.

    Args:
        size: numbers in a value.
    """

    count: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(size, dtype=torch.float64))

    def add(self, sums: Tensor) -> None:
        """Add the result of `sums_of`, of one rank or summed over several."""
        count, (total, square) = sums[:1], sums[1:].chunk(2)
        together = self.count + count
        if float(together) == 0:
            return
        self.mean += (total - count * self.mean) / together
        self.square += (square - count * self.square) / together
        self.count.copy_(together)

    @property
    def std(self) -> Tensor:
        """Standard deviation, float64, shape (size,); 1 before anything was added."""
        if float(self.count) == 0:
            return torch.ones_like(self.mean)
        return ((self.square - self.mean**2).clamp(min=0) + SMALL).sqrt()


class Normaliser(nn.Module):
    """Scales observations by their mean and deviation, and rewards by the deviation of discounted returns.

    Args:
        features: size of an observation.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.obs, self.returns = Moments(features), Moments(1)

    def see(self, obs: Tensor) -> Tensor:
        """Return observations of shape (n, features) as the model sees them."""
        scaled = (obs - self.obs.mean) / self.obs.std
        return scaled.clamp(-LARGEST, LARGEST).to(obs.dtype)

    def scale(self, rewards: Tensor) -> Tensor:
        """Return rewards of shape (n,) as the model learns them."""
        return (rewards / self.returns.std).clamp(-LARGEST, LARGEST).to(rewards.dtype)

    def add(self, sums: Tensor) -> None:
        """Add one tensor: `sums_of` the observations, then `sums_of` the returns."""
        of_obs = 1 + 2 * self.obs.size
        self.obs.add(sums[:of_obs])
        self.returns.add(sums[of_obs:])


def sums_of(values: Tensor) -> Tensor:
    """Return number, sums and sums of squares of values of shape (n, size): float64, shape (1 + 2 · size,)."""
    values = values.double()
    return torch.cat([values.new_tensor([len(values)]), values.sum(0), (values**2).sum(0)])


def sums_by_minibatch(values: Tensor) -> Tensor:
    """Return sums, then sums of squares, of each row of values of shape (rows, n): float64, shape (2 · rows,)."""
    values = values.double()
    return torch.cat([values.sum(1), (values**2).sum(1)])


def mean_and_std(sums: Tensor, count: int) -> Tensor:
    """Return means, then deviations (of n - 1), of rows of `count` values, shape (2, rows).

    `sums` is the result of `sums_by_minibatch` as (2, rows).
    """
    mean = sums[0] / count
    square = (sums[1] - count * mean**2).clamp(min=0) / max(1, count - 1)
    return torch.stack([mean, square.sqrt()])
