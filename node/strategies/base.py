"""The interface of a strategy: which ranks exchange what, and when.

The loop (node/train.py) owns data, model, evaluation and metrics. After every backward pass it calls `step`; the
strategy moves the parameters with the given optimiser and communicates with the other ranks through `self.comm`. A new
strategy is a dataclass whose fields are its options, in a file here or in your own (`--strategy ./mine.py:NowAndThen`):

    from dataclasses import dataclass

    from node.base.options import option
    from node.strategies.base import Strategy


    @dataclass
    class NowAndThen(Strategy):
        '''Average the parameters every `every` steps.'''

        every: int = option(50, "local steps between two averages", at_least=1)

        def step(self, step: int) -> None:
            self.optimizer.step()
            if step % self.every == 0:
                self.outer = self.comm.average(self.parameters)

        def finish(self, step: int) -> None:
            self.outer = self.comm.average(self.parameters)

Rules that keep strategies comparable:

- Use the given optimiser.
- Send one flat tensor per collective, never one per parameter: over links of 100 ms, 8 tensors on 3 ranks cost 3.2 s of
  latency a step, one tensor costs 0.4 s.
- Run the same collectives in the same order on all ranks.
- Send tensors whose size differs from step to step in `with self.comm.varying_sizes():`, so that reports take them
  together.
- Draw what must be the same on all ranks from `self.seed` and the step: it need not be sent.
- The strategies here import torch only where they compute (in setup, or in a module of their own: outer.py, dct.py, …),
  because options are also checked on machines without torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm

# How an average is encoded in transit: node/dist/codec.py.
CODECS = ("none", "fp16", "bf16", "int8")


class Strategy:
    """Base class of all strategies.

    Attributes:
        model: the model being trained; its `.grad`s are filled when `step` is called.
        parameters: the model's trainable parameters, in the model's order.
        optimizer: the optimiser that the user asked for, over `parameters`.
        comm: the collectives, which count bytes and seconds.
        seed: the same on every rank.
        samples: number of this rank's own training samples, known before `setup`.
        accumulating: whether more backward passes follow the current one before `step`.
        outer: the parameters to test: those that the ranks last agreed on, as one flat tensor in the order of
            `parameters`; None while the model itself has them, or if ranks agree on nothing before the end. With
            eager-diloco, and with fedavg's islands, they differ between ranks until the end.
        replaces_gradient: whether `step` gives the optimiser a direction of the strategy's own instead of the
            gradient. The optimiser is then SGD without momentum, and `--clip-norm` applies to the rank's gradient
            before `step`.
        default_lr: the learning rate if the user gives none; None: the optimiser's default.
        of_this_run: names of attributes that no checkpoint holds: a resumed run keeps what `setup` made of its own
            links, say. All others are restored after `setup`.
    """

    replaces_gradient: ClassVar[bool] = False
    default_lr: ClassVar[float | None] = None
    of_this_run: ClassVar[frozenset[str]] = frozenset()
    model: "nn.Module"
    parameters: "list[nn.Parameter]"
    optimizer: "Optimizer"
    comm: "Comm"
    seed: int
    samples: int = 0
    accumulating: bool = False
    outer: "Tensor | None" = None

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Prepare for the run. Called once, before the first step, with the same parameters on every rank.

        A strategy that overlaps communication with the backward pass installs its hooks here. What these hooks do
        besides sending runs in `self.comm.packing()`, because it is not part of computing.
        """
        self.model = model
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer
        self.comm = comm
        self.seed = seed

    def step(self, step: int) -> None:
        """Use the gradients of one backward pass.

        Its time counts as the bucket `strategy`, except steps of `self.optimizer` (compute) and waiting (comm).

        Args:
            step: 1 for the first step, the same on every rank.
        """
        raise NotImplementedError

    def finish(self, step: int) -> None:
        """Leave the same parameters on every rank. Called after the last step, number `step`."""

    @contextmanager
    def outer_model(self) -> Iterator["nn.Module"]:
        """Yield the model with the outer parameters, for evaluation; restore its own parameters afterwards.

        Between two exchanges a rank's own parameters are one replica, the worst choice for evaluation (Streaming
        DiLoCo, arXiv 2501.18512, table 3: loss of the first replica 2.77, of the outer parameters 2.67).
        """
        if self.outer is None:
            yield self.model
            return
        own = self.flat_parameters()
        self.load_parameters(self.outer)
        try:
            yield self.model
        finally:
            self.load_parameters(own)

    def gradients(self) -> "list[Tensor]":
        """Return the gradient of every parameter; zeros if this rank's backward pass found none."""
        import torch

        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self.parameters]

    def flat_parameters(self) -> "Tensor":
        """Return a copy of all parameters as one tensor of shape (number of parameters,)."""
        from node.dist.flat import flatten

        return flatten(self.parameters)

    def load_parameters(self, flat: "Tensor") -> None:
        """Set all parameters from one flat tensor, as `flat_parameters` returns it."""
        from node.dist.flat import unflatten_into

        unflatten_into(flat, self.parameters)
