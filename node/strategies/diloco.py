"""DiLoCo (Douillard et al., 2023, arXiv 2311.08105): local steps, and an outer optimiser."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import option
from node.strategies.base import CODECS, Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class DiLoCo(Strategy):
    """Step locally H times, then move the shared parameters with Nesterov momentum.

    The gradient of the outer step is the mean over the ranks of (shared - own) parameters. All ranks restart from the
    result, and keep the state of their own optimisers. A rank sends 2(N-1)/N · P bytes every H steps (P: bytes of all
    parameters), half of that as fp16 or bf16, a quarter as int8.
    """

    H: int = option(20, "local steps between two outer steps", at_least=1)
    outer_lr: float = option(0.7, "learning rate of the outer step", above=0.0)
    outer_momentum: float = option(0.9, "momentum of the outer step", at_least=0.0, below=1.0)
    codec: str = option("none", "encoding of outer gradients", choices=CODECS)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common."""
        from node.strategies.outer import Outer

        super().setup(model, optimizer, comm, seed)
        flat = self.flat_parameters()
        self._shared = Outer(flat, "nesterov", self.outer_lr, self.outer_momentum)
        self.outer = self._shared.flat

    def step(self, step: int) -> None:
        """Step locally; make an outer step after every H-th step."""
        self.optimizer.step()
        if step % self.H == 0:
            self._sync()

    def finish(self, step: int) -> None:
        """Make one more outer step if the last round was cut short."""
        if step % self.H != 0:
            self._sync()

    def _sync(self) -> None:
        shared = self._shared.sync(self.comm, self.flat_parameters(), self.codec)
        self.load_parameters(shared)
