"""Data-parallel training: every step averages the gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import OptionError, option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm


@dataclass
class DDP(Strategy):
    """Average the gradients every step: equivalent to one process with all ranks' batches.

    A rank sends 2(N-1)/N · P bytes a step (P: bytes of all parameters), half of that as fp16 or bf16, in one
    all-reduce or in one per bucket. Buckets are cut as in PyTorch's DDP: from the last parameters to the first,
    because the gradients of the last come first.
    """

    bucket_mb: float = option(
        0.0, "bucket of gradients sent together, in 10^6 bytes; 0: all", at_least=0.0
    )
    hook: str = option("none", "encoding of gradients", choices=("none", "fp16", "bf16"))
    overlap: bool = option(False, "send buckets during the backward pass")

    def __post_init__(self) -> None:
        """Refuse options that would have no effect."""
        if self.overlap and not self.bucket_mb:
            raise OptionError(
                "overlap needs bucket_mb: with one bucket there is nothing to overlap"
            )

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Cut the buckets; for overlap, have every parameter report its gradient."""
        super().setup(model, optimizer, comm, seed)
        self._buckets = cut_buckets(self.parameters[::-1], self.bucket_mb * 1e6)
        self._started: list[Callable[[], Tensor]] = []
        self._ready: set[nn.Parameter] = set()
        if self.overlap:
            for parameter in self.parameters:
                parameter.register_post_accumulate_grad_hook(self._note)

    def step(self, step: int) -> None:
        """Send the buckets that have not been sent, wait for the means, and step with them."""
        from node.dist.flat import unflatten_into

        self.gradients()  # fills in missing ones
        while len(self._started) < len(self._buckets):
            self._start_next()
        for bucket, mean in zip(self._buckets, self._started, strict=True):
            unflatten_into(mean(), [p.grad for p in bucket])
        self._started.clear()
        self._ready.clear()
        self.optimizer.step()

    def _note(self, parameter: "nn.Parameter") -> None:
        """Note that a gradient is ready. Buckets start in their order, which is the same on all ranks."""
        if self.accumulating:
            return  # later passes add to it
        self._ready.add(parameter)
        while len(self._started) < len(self._buckets) and self._ready.issuperset(
            self._buckets[len(self._started)]
        ):
            self._start_next()

    def _start_next(self) -> None:
        from node.dist.flat import flatten

        bucket = self._buckets[len(self._started)]
        with self.comm.packing():
            flat = flatten([p.grad for p in bucket])
            self._started.append(self.comm.start_average(flat, self.hook))


def cut_buckets(parameters: "list[nn.Parameter]", size: float) -> "list[list[nn.Parameter]]":
    """Return the parameters in buckets of at least `size` bytes, except the last; 0 makes one bucket."""
    buckets: list[list[nn.Parameter]] = [[]]
    held = 0
    for parameter in parameters:
        if size and held >= size:
            buckets.append([])
            held = 0
        buckets[-1].append(parameter)
        held += parameter.nbytes
    return buckets
