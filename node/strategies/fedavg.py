"""Federated averaging (McMahan et al., 2017, arXiv 1602.05629) and its relatives."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import OptionError, option
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm

SERVER_LR = {"avg": 1.0, "momentum": 1.0, "adam": 0.01}


@dataclass
class FedAvg(Strategy):
    """Step locally H times, then average the parameters.

    The optimiser's state stays local. A rank sends 2(N-1)/N · P bytes every H steps (P: bytes of all parameters), in
    one all-reduce. If only some ranks are averaged, each sums one slice and sends it to the others;
    node.dist.comm.Comm.sum_among has the bytes. With weights=samples, parameters in half precision are sent as float32:
    twice the bytes. A rank that is not chosen has trained that round in vain, like a device that does not answer.

    Islands agree only within themselves, until all ranks average after the last step (2(N-1)/N · P bytes more): until
    then the average of rank 0's island is tested, or that of all ranks with `--eval after`.

    Variants: `mu` gives FedProx (Li et al., 2020, arXiv 1812.06127); `server` gives FedAvgM (Hsu et al., 2019, arXiv
    1909.06335) and FedAdam (Reddi et al., 2021, arXiv 2003.00295), whose server step every rank makes itself.
    """

    H: int = option(20, "local steps between two averages", at_least=1)
    fraction: float = option(
        1.0, "share of the ranks averaged, drawn anew each round", above=0.0, at_most=1.0
    )
    island_size: int = option(
        0, "ranks per averaging group, drawn anew each round; 0: all", at_least=0
    )
    weights: str = option(
        "even", "weight of a rank: equal, or its number of samples", choices=("even", "samples")
    )
    mu: float = option(0.0, "FedProx: strength of the pull to the last average", at_least=0.0)
    server: str = option("avg", "server step on the average", choices=("avg", "momentum", "adam"))
    server_lr: float = option(0.0, "server learning rate; 0: 1, or 0.01 for adam", at_least=0.0)
    server_momentum: float = option(0.9, "momentum, or first beta of adam", at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other, or would have no effect."""
        if self.island_size and (self.fraction < 1 or self.server != "avg" or self.server_lr):
            raise OptionError(
                "island_size goes with neither fraction nor a server: islands average"
            )
        if self.server == "avg" and self.server_momentum != FedAvg.server_momentum:
            raise OptionError("server_momentum needs server=momentum or server=adam")

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Start from the parameters that all ranks have in common."""
        from node.strategies.outer import Outer

        super().setup(model, optimizer, comm, seed)
        lr = self.server_lr or SERVER_LR[self.server]
        momentum = self.server_momentum if self.server != "avg" else 0.0
        self._server = Outer(
            self.flat_parameters(), "adam" if self.server == "adam" else "sgd", lr, momentum
        )
        self.outer = self._server.flat

    def step(self, step: int) -> None:
        """Step locally; average after every H-th step."""
        if self.mu:
            self._pull()
        self.optimizer.step()
        if step % self.H == 0:
            self._average(step)

    def finish(self, step: int) -> None:
        """Average once more if the last round was cut short or averaged islands."""
        if step % self.H != 0:
            self._average(step)
        if self.island_size:
            self.outer = self.comm.average(self.parameters)

    def _pull(self) -> None:
        """Add the gradient of mu/2 · |own - outer|²."""
        pulls = (self.flat_parameters() - self.outer).split([p.numel() for p in self.parameters])
        for gradient, pull in zip(self.gradients(), pulls, strict=True):
            gradient.add_(pull.view_as(gradient), alpha=self.mu)

    def _average(self, step: int) -> None:
        members, receivers = self._circle(step)
        mean = self._mean(members, receivers)
        self.load_parameters(self._server.move(self.outer - mean))

    def _circle(self, step: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the ranks to average and the ranks that get the mean; the draw is the same on all ranks."""
        everyone = range(self.comm.world_size)
        order = random.Random(f"{self.seed} {step}").sample(everyone, len(everyone))
        if self.fraction < 1:
            count = int(self.fraction * len(everyone) + 0.5)  # round() takes the even one of two
            return sorted(order[: max(1, count)]), everyone
        size = self.island_size or len(everyone)
        start = order.index(self.comm.rank) // size * size
        island = sorted(order[start : start + size])
        return island, island

    def _mean(self, members: Sequence[int], receivers: Sequence[int]) -> "Tensor":
        """Return the mean of the members' parameters; weights by samples travel as one more number."""
        import torch

        own = self.flat_parameters()
        if self.weights == "even":
            self.comm.sum_among(own, members, receivers)
            return own / len(members)
        # Half precision has not enough digits for a number of samples, nor always the range for what it weighs.
        kind = torch.promote_types(own.dtype, torch.float32)
        weighted = own.new_empty(len(own) + 1, dtype=kind)
        weighted[:-1], weighted[-1] = own, 1
        weighted *= self.samples
        self.comm.sum_among(weighted, members, receivers)
        return (weighted[:-1] / weighted[-1]).to(own.dtype)
