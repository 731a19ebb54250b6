"""Post-local SGD (Lin et al., 2020, arXiv 1808.07217): synchronous at first, then with local steps."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class LocalSGD(Strategy):
    """Average gradients in the first steps, then step locally and average parameters.

    Like PyTorch's PostLocalSGDOptimizer with its PeriodicModelAverager, in one flat tensor; but PyTorch averages
    after the first local step and then every H, this one first after H local steps. The optimiser's state stays
    local: it is the same on all ranks until the local steps begin. A rank sends 2(N-1)/N · P bytes (P: bytes of all
    parameters) in each of the first steps, and every H steps from then on. With start_after=0 it is fedavg.
    """

    H: int = option(20, "local steps between two averages", at_least=1)
    start_after: int = option(10, "initial steps, which average gradients", at_least=0)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common."""
        super().setup(model, optimizer, comm, seed)
        if self.start_after == 0:
            self.outer = self.flat_parameters()

    def step(self, step: int) -> None:
        """Step with the mean of the gradients at first; later step locally, and average after every H-th step."""
        if step <= self.start_after:
            self.comm.average(self.gradients())
        self.optimizer.step()
        if step == self.start_after:  # the last ones that are equal before local steps
            self.outer = self.flat_parameters()
        elif step > self.start_after and self._local_steps(step) == 0:
            self.outer = self.comm.average(self.parameters)

    def finish(self, step: int) -> None:
        """Average once more if the last round was cut short."""
        if step > self.start_after and self._local_steps(step) != 0:
            self.outer = self.comm.average(self.parameters)

    def _local_steps(self, step: int) -> int:
        """Return the number of local steps since the ranks last agreed; 0 at the end of a round."""
        return (step - self.start_after) % self.H
