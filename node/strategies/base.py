"""What a strategy is: which ranks exchange what, and when; nothing else.

The loop (node/train.py) owns data, model, evaluation and metrics. After every backward pass it
calls `step`; the strategy moves the parameters with the given optimiser and talks to the other
ranks through `self.comm`. A new one is a dataclass whose fields are its options:

    @dataclass
    class NowAndThen(Strategy):
        '''Average the parameters every `every` steps.'''

        every: int = option(50, "local steps between two averages", at_least=1)

        def step(self, step: int) -> None:
            self.optimizer.step()
            if step % self.every == 0:
                self.outer = self.comm.average(self.parameters)

Rules that keep strategies comparable:

- The optimiser given is the optimiser used.
- One flat tensor a collective, never one a parameter: over links of 100 ms, 8 tensors on 3 ranks
  are 3.2 s of latency a step, one is 0.4 s.
- All ranks run the same collectives in the same order.
- No torch import at module level: options can be checked where there is no torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.comm import Comm


class Strategy:
    """Base class of all strategies.

    Attributes:
        model: the model being trained; its `.grad`s are filled when `step` is called.
        parameters: the model's trainable parameters, in the model's order.
        optimizer: the optimiser the user asked for, over `parameters`.
        comm: the collectives, which count bytes and seconds.
        outer: what the ranks last agreed on, as one flat tensor in the order of `parameters`; None
            while the model itself is that.
    """

    model: "nn.Module"
    parameters: "list[nn.Parameter]"
    optimizer: "Optimizer"
    comm: "Comm"
    outer: "Tensor | None" = None

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm") -> None:
        """Called once, before the first step, with the same parameters on every rank.

        A strategy that overlaps communication with the backward pass installs its hooks here.
        """
        self.model = model
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer
        self.comm = comm

    def step(self, step: int) -> None:
        """Use the gradients of one backward pass.

        Args:
            step: 1 for the first step, the same on every rank.
        """
        raise NotImplementedError

    def finish(self, step: int) -> None:
        """Called after the last step, number `step`: leave the same parameters on every rank."""

    @contextmanager
    def outer_model(self) -> Iterator["nn.Module"]:
        """The model with the outer parameters: what is evaluated. Its own are back afterwards.

        Between two exchanges a rank's own parameters are one replica, and the worst of the choices
        to evaluate (Streaming DiLoCo, arXiv 2501.18512, table 3: loss of the first replica 2.77, of
        the outer parameters 2.67).
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

    def flat_parameters(self) -> "Tensor":
        """A copy of all parameters as one tensor of shape (number of parameters,)."""
        from node.comm import flatten

        return flatten(self.parameters)

    def load_parameters(self, flat: "Tensor") -> None:
        """Set all parameters from one flat tensor, as `flat_parameters` gives it."""
        from node.comm import unflatten_into

        unflatten_into(flat, self.parameters)
