"""PowerSGD (Vogels et al., 2019, arXiv 1905.13727): gradients as products of thin matrices."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class PowerSGD(Strategy):
    """Average the gradients every step, each matrix as two thin factors, with error feedback.

    For an n x m matrix a rank sends 2(N-1)/N · 4 (n + m) · rank bytes a step, in two all-reduces: first the left
    factors of all matrices, together with all gradients that are not matrices or would hardly shrink; then the right
    factors, which start from those of the previous step.
    """

    rank: int = option(4, "columns of the factors", at_least=1)
    min_compression: float = option(
        2.0, "send matrices whole that shrink by less than this factor", at_least=0.0
    )
    start_after: int = option(0, "initial steps, which average whole gradients", at_least=0)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Choose the matrices, and draw their first right factors, the same on every rank."""
        from torch import Generator

        from node.strategies.lowrank import LowRank, matrix_shape

        super().setup(model, optimizer, comm, seed)
        self._whole: list[nn.Parameter] = []
        self._matrices: list[nn.Parameter] = []
        self._factors: list[LowRank] = []
        generator = Generator().manual_seed(seed)
        for parameter in self.parameters:
            shape = matrix_shape(parameter)
            rank = min(self.rank, *shape)
            thin = sum(shape) * rank
            if parameter.ndim < 2 or parameter.numel() < thin * self.min_compression:
                self._whole.append(parameter)
            else:
                self._matrices.append(parameter)
                self._factors.append(LowRank(shape, rank, parameter.detach(), generator))

    def step(self, step: int) -> None:
        """Average the gradients by their factors, or whole at first, then step."""
        gradients = self.gradients()
        if step <= self.start_after:
            self.comm.average(gradients)
        else:
            self._average()
        self.optimizer.step()

    def _average(self) -> None:
        lefts = [
            factor.compress(parameter.grad)
            for factor, parameter in zip(self._factors, self._matrices, strict=True)
        ]
        self.comm.average([*lefts, *(parameter.grad for parameter in self._whole)])
        rights = [factor.project(left) for factor, left in zip(self._factors, lefts, strict=True)]
        if rights:
            self.comm.average(rights)
        for factor, right, parameter in zip(self._factors, rights, self._matrices, strict=True):
            parameter.grad.copy_(factor.gradient(right).view_as(parameter))
