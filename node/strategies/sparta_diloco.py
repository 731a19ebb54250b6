"""SPARTA between the outer steps of DiLoCo: see sparta.py and diloco.py."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import option
from node.strategies.diloco import DiLoCo
from node.strategies.sparta import LEAST_SHARE

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class SpartaDiLoCo(DiLoCo):
    """DiLoCo whose ranks also average a share p of their parameters every step.

    So the ranks stay close to one another, and H may be larger. A rank sends 2(N-1)/N · (p + 1/H) · P bytes a step on
    average (P: bytes of all parameters); `codec` makes DiLoCo's part smaller.
    """

    p: float = option(
        0.005, "share of the parameters averaged per step", at_least=LEAST_SHARE, at_most=1.0
    )
    selector: str = option(
        "random",
        "drawn anew each step, or all in ceil(1/p) steps: a share of 1/ceil(1/p) each",
        choices=("random", "partition"),
    )
    H: int = option(100, "local steps between two outer steps", at_least=1)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common, and prepare the draws."""
        from node.strategies.masks import Masks

        super().setup(model, optimizer, comm, seed)
        self._masks = Masks(len(self._shared.flat), self.p, self.selector, seed)

    def step(self, step: int) -> None:
        """Step locally and average the parameters that are drawn; make an outer step after every H-th step."""
        self.optimizer.step()
        flat = self.flat_parameters()
        self._masks.average(self.comm, flat, step)
        self.load_parameters(flat)
        if step % self.H == 0:
            self._sync()
