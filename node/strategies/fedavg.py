"""Federated averaging (McMahan et al., 2017, arXiv 1602.05629): all ranks in every round."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.options import option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.comm import Comm


@dataclass
class FedAvg(Strategy):
    """Step locally H times, then average the parameters; the optimiser's state stays local.

    A rank sends 2(N-1)/N · P bytes every H steps (P: bytes of all parameters), in one all-reduce.
    """

    H: int = option(20, "local steps between two averages", at_least=1)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm") -> None:
        """Start from the parameters that all ranks have in common."""
        super().setup(model, optimizer, comm)
        self.outer = self.flat_parameters()

    def step(self, step: int) -> None:
        """Step locally; average after every H-th step."""
        self.optimizer.step()
        if step % self.H == 0:
            self.outer = self.comm.average(self.parameters)

    def finish(self, step: int) -> None:
        """Average once more if the last round was cut short."""
        if step % self.H != 0:
            self.outer = self.comm.average(self.parameters)
