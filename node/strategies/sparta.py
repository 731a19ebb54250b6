"""SPARTA (Beton et al., 2025: Sparse Parameter Averaging): averages a small share of them every step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm

LEAST_SHARE = 1e-12  # less than one parameter of any model; 1/p is still a number


@dataclass
class Sparta(Strategy):
    """Step locally, then average a share p of the parameters, a different one each step.

    A rank sends 2(N-1)/N · p · P bytes a step (P: bytes of all parameters), and 2(N-1)/N · P after the last; every rank
    draws the share from the seed by itself. Ranks never agree on all parameters before the end; until then rank 0's own
    are tested, or the average with `--eval after`.
    """

    p: float = option(
        0.005, "share of the parameters averaged per step", at_least=LEAST_SHARE, at_most=1.0
    )
    selector: str = option(
        "random",
        "drawn anew each step, or all in ceil(1/p) steps: a share of 1/ceil(1/p) each",
        choices=("random", "partition"),
    )

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Prepare the draws of parameters."""
        from node.strategies.masks import Masks

        super().setup(model, optimizer, comm, seed)
        self._masks = Masks(len(self.flat_parameters()), self.p, self.selector, seed)

    def step(self, step: int) -> None:
        """Step locally, then average the parameters that are drawn."""
        self.optimizer.step()
        flat = self.flat_parameters()
        self._masks.average(self.comm, flat, step)
        self.load_parameters(flat)

    def finish(self, step: int) -> None:
        """Average all parameters."""
        self.comm.average(self.parameters)
