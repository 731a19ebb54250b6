"""Post-local SGD (Lin et al., 2020, arXiv 1808.07217): together at first, then each for itself."""

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
    """Average the gradients of the first steps, then step locally and average parameters.

    As PyTorch's PostLocalSGDOptimizer with its PeriodicModelAverager, in one flat tensor; but that
    averages after the first local step and every H from there, this first after H of them. The
    optimiser's state stays local: it is alike on all ranks until the local steps begin. A rank
    sends 2(N-1)/N · P bytes (P: bytes of all parameters) in each of the first steps, and every H
    steps from then on. With none of those first steps it is fedavg.
    """

    H: int = option(20, "local steps between two averages", at_least=1)
    start_after: int = option(10, "steps that average gradients first", at_least=0)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common."""
        super().setup(model, optimizer, comm, seed)
        if self.start_after == 0:
            self.outer = self.flat_parameters()

    def step(self, step: int) -> None:
        """Step with the mean of the gradients; later locally, and average after every H-th step."""
        if step <= self.start_after:
            self.comm.average(self.gradients())
        self.optimizer.step()
        if step == self.start_after:  # the last parameters that are alike before local steps
            self.outer = self.flat_parameters()
        elif step > self.start_after and self._local_steps(step) == 0:
            self.outer = self.comm.average(self.parameters)

    def finish(self, step: int) -> None:
        """Average once more if the last round was cut short."""
        if step > self.start_after and self._local_steps(step) != 0:
            self.outer = self.comm.average(self.parameters)

    def _local_steps(self, step: int) -> int:
        """How many steps of a round have gone since the ranks last agreed; 0 where one ends."""
        return (step - self.start_after) % self.H
