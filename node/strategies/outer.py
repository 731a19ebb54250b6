"""Parameters that all ranks share, and the optimiser that moves them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from node.dist.comm import Comm


class FedAdam:
    """Algorithm 2 of Reddi et al. (2021, arXiv 2003.00295), with their second beta and tau.

    Unlike torch's Adam, it does not correct the bias of moments, and the second moment starts at tau², so that the
    first steps are short if little was learnt.

    Args:
        flat: shape (parameters,); its gradient is the mean over the ranks of (shared - own).
        lr: the server's learning rate.
        beta_1: beta of the first moment.
    """

    BETA_2 = 0.99
    TAU = 1e-3

    def __init__(self, flat: nn.Parameter, lr: float, beta_1: float) -> None:
        self._flat = flat
        self._lr = lr
        self._beta_1 = beta_1
        self._first = torch.zeros_like(flat)
        self._second = torch.full_like(flat, self.TAU**2)

    def step(self) -> None:
        """Move along the gradient's running mean, divided by its running size."""
        self._first.lerp_(self._flat.grad, 1 - self._beta_1)
        self._second.lerp_(self._flat.grad**2, 1 - self.BETA_2)
        size = self._second.sqrt() + self.TAU
        self._flat.addcdiv_(self._first, size, value=-self._lr)


class Outer:
    """Shared parameters, moved by the mean change of the ranks' own ones.

    The mean over the ranks of (shared - own) is taken as a gradient (Reddi et al., 2021, arXiv 2003.00295). Every
    rank makes the same outer step with the same mean, so nothing need be sent afterwards.

    Args:
        flat: shape (parameters,); moved in place.
        kind: `sgd` (with or without momentum), `nesterov`, or `adam` (FedAdam).
        lr: the outer learning rate.
        momentum: of sgd and nesterov; the first beta of adam.
    """

    def __init__(self, flat: Tensor, kind: str, lr: float, momentum: float) -> None:
        self.flat = nn.Parameter(flat, requires_grad=False)
        self._optimizer: torch.optim.Optimizer | FedAdam
        if kind == "adam":
            self._optimizer = FedAdam(self.flat, lr, momentum)
        else:
            nesterov = kind == "nesterov" and momentum > 0
            self._optimizer = torch.optim.SGD([self.flat], lr, momentum, nesterov=nesterov)

    def move(self, delta: Tensor) -> Tensor:
        """Make one outer step with the mean of (shared - own) parameters; return the shared ones."""
        self.flat.grad = delta
        self._optimizer.step()
        return self.flat

    def sync(self, comm: "Comm", own: Tensor, codec: str) -> Tensor:
        """Average (shared - own) over the ranks in one exchange, and move; return the shared parameters."""
        return self.move(comm.start_average(self.flat - own, codec)())
