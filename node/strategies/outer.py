"""Parameters that all ranks share, and the optimiser that moves them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from node.comm import Comm


class Outer:
    """Shared parameters, moved by what the ranks' own ones have in common.

    The mean of how far the ranks have come is taken as a gradient (Reddi et al., 2021, arXiv
    2003.00295). Every rank makes the identical outer step with the identical mean, so nothing need
    be sent after it.

    Args:
        flat: shape (parameters,); moved in place.
        kind: `sgd` (with or without momentum), `nesterov`, or `adam`.
        lr: the outer learning rate.
        momentum: of sgd and nesterov; the first beta of adam.
    """

    def __init__(self, flat: Tensor, kind: str, lr: float, momentum: float) -> None:
        self.flat = nn.Parameter(flat, requires_grad=False)
        self._optimizer: torch.optim.Optimizer
        if kind == "adam":
            # FedAdam's second beta and epsilon, as in its paper.
            betas = (momentum, 0.99)
            self._optimizer = torch.optim.Adam([self.flat], lr, betas, eps=1e-3)
        else:
            nesterov = kind == "nesterov" and momentum > 0
            self._optimizer = torch.optim.SGD([self.flat], lr, momentum, nesterov=nesterov)

    def move(self, delta: Tensor) -> Tensor:
        """One outer step along the mean of (shared - own) parameters; returns the shared ones."""
        self.flat.grad = delta
        self._optimizer.step()
        return self.flat

    def sync(self, comm: "Comm", own: Tensor, codec: str) -> Tensor:
        """Average how far the ranks have come, in one exchange, and move; returns the shared ones."""
        return self.move(comm.start_average(self.flat - own, codec)())
