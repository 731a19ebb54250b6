"""DeMo (Peng, Quesnelle, Kingma, 2024, arXiv 2411.19870): decoupled momentum."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from node.base.options import option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class DeMo(Strategy):
    """Keep a separate momentum on every rank, and send its largest DCT waves.

    The waves that are sent leave the momentum; the sign of the mean of all ranks' waves replaces the gradient in a
    step of SGD. The momentum accumulates the gradient times the learning rate of its step, as in the authors' code:
    under a schedule, gradients of steps with a higher rate count more. Their code handles vectors and matrices; here
    a tensor of more dimensions is a matrix whose rows are its first dimension. A rank sends (N-1) · 6 · topk bytes
    per chunk and step, 4 for a wave and 2 for its place, in one all-gather: this grows with N.
    """

    replaces_gradient: ClassVar[bool] = True
    default_lr: ClassVar[float | None] = 0.001

    decay: float = option(0.999, "decay of the momentum per step", at_least=0.0, below=1.0)
    topk: int = option(32, "waves sent per chunk", at_least=1)
    chunk: int = option(
        64, "largest number of rows and columns of a chunk", at_least=1, at_most=181
    )
    sign: bool = option(True, "step by the sign only")

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Cut the parameters into chunks."""
        from node.strategies.dct import Chunks

        super().setup(model, optimizer, comm, seed)
        self._momenta = [p.detach().new_zeros(p.shape) for p in self.parameters]
        self._chunks = [Chunks(p.detach(), self.chunk, self.topk) for p in self.parameters]

    def step(self, step: int) -> None:
        """Send the largest waves, then step by what all ranks sent."""
        from node.strategies.dct import pack, unpack

        lr = self.optimizer.param_groups[0]["lr"]
        values, places = [], []
        for gradient, momentum, chunks in zip(
            self.gradients(), self._momenta, self._chunks, strict=True
        ):
            momentum.mul_(self.decay).add_(gradient, alpha=lr)
            value, place = chunks.largest(momentum)
            momentum.sub_(chunks.tensor(value, place))
            values.append(value)
            places.append(place)
        packed = self.comm.all_gather(pack(values, places))
        everyone = iter(unpack(packed, self._chunks, values[0].dtype))
        for parameter, chunks in zip(self.parameters, self._chunks, strict=True):
            mean = chunks.tensor(next(everyone), next(everyone))
            # Without the sign the mean is the step itself; SGD multiplies by the rate, which it already has.
            parameter.grad.copy_(mean.sign() if self.sign else mean / (lr or 1.0))
        self.optimizer.step()
