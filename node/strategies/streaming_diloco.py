"""Streaming DiLoCo (Douillard et al., 2025, arXiv 2501.18512): one fragment at a time, overlapped."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import OptionError, option
from node.strategies.base import CODECS, Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class StreamingDiLoCo(Strategy):
    """DiLoCo that sends one fragment at a time while training continues.

    Every H/F steps one of F fragments makes its outer step, each fragment once in H steps. Its data are sent tau
    steps earlier and arrive at parameters that have moved on: these become (1 - alpha) · shared + alpha · own. A rank
    sends 2(N-1)/N · P/F bytes every H/F steps (P: bytes of all parameters), half of that as fp16 or bf16, a quarter
    as int8; after the last step it sends once more the fragments that are not up to date, all of them at once.

    A fragment is a piece of the flat parameters; all have the same size, up to one parameter.
    """

    H: int = option(20, "local steps between two outer steps of a fragment", at_least=1)
    fragments: int = option(4, "number of fragments; divides H", at_least=1)
    tau: int = option(1, "steps that an exchange may take, less than H/fragments", at_least=0)
    alpha: float = option(
        0.5, "weight of own parameters when mixed with the shared ones", at_least=0.0, below=1.0
    )
    outer_lr: float = option(0.7, "learning rate of the outer step", above=0.0)
    outer_momentum: float = option(0.9, "momentum of the outer step", at_least=0.0, below=1.0)
    codec: str = option("none", "encoding of outer gradients", choices=CODECS)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.H % self.fragments:
            raise OptionError(f"H={self.H} is no multiple of fragments={self.fragments}")
        if self.tau >= self.H // self.fragments:
            raise OptionError(f"tau={self.tau} is not less than H/fragments={self._every}")

    @property
    def _every(self) -> int:
        """Steps between the outer steps of two fragments."""
        return self.H // self.fragments

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common; fragments are views of them."""
        from node.strategies.outer import Outer

        super().setup(model, optimizer, comm, seed)
        self.outer = self.flat_parameters()
        self._fragments = [
            Outer(piece, "nesterov", self.outer_lr, self.outer_momentum)
            for piece in self.outer.tensor_split(self.fragments)
        ]
        self._synced = [0] * self.fragments  # step of each fragment's last outer step
        # None while nothing is sent, also if a resumed run with another number of ranks begins between sending and due.
        self._under_way: tuple[int, Callable[[], Tensor]] | None = None

    def step(self, step: int) -> None:
        """Step locally; send a fragment when it is due, and apply the mean of one when that is due."""
        self.optimizer.step()
        due = step + self.tau
        if due % self._every == 0:
            self._send((due // self._every - 1) % self.fragments)
        if step % self._every == 0 and self._under_way:
            self._take(*self._under_way, step)

    def finish(self, step: int) -> None:
        """Apply the mean in flight; make one joint outer step of the fragments that are not up to date."""
        if self._under_way:
            self._take(*self._under_way, step)
        late = [f for f in range(self.fragments) if self._synced[f] != step]
        if late:
            self._sync(late)
        self.load_parameters(self.outer)

    def _own(self, fragment: int) -> "Tensor":
        return self.flat_parameters().tensor_split(self.fragments)[fragment]

    def _send(self, fragment: int) -> None:
        delta = self._fragments[fragment].flat - self._own(fragment)
        self._under_way = fragment, self.comm.start_average(delta, self.codec)

    def _take(self, fragment: int, mean: "Callable[[], Tensor]", step: int) -> None:
        shared = self._fragments[fragment].move(mean())
        flat = self.flat_parameters()
        own = flat.tensor_split(self.fragments)[fragment]
        own.copy_(shared.lerp(own, self.alpha))
        self.load_parameters(flat)
        self._synced[fragment] = step
        self._under_way = None

    def _sync(self, fragments: list[int]) -> None:
        from node.dist.flat import flatten

        deltas = [self._fragments[f].flat - self._own(f) for f in fragments]
        mean = self.comm.start_average(flatten(deltas), self.codec)()
        pieces = mean.split([len(delta) for delta in deltas])
        for fragment, piece in zip(fragments, pieces, strict=True):
            self._fragments[fragment].move(piece)
