"""Gossip: ranks average with their neighbours only."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from node.base.options import option
from node.strategies import graphs
from node.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from node.dist.comm import Comm

GRAPHS = ("links", "ring", "exponential", "complete")


@dataclass
class Gossip(Strategy):
    """Step locally, then mix parameters with the neighbours, every step.

    D-PSGD (Lian et al., 2017, arXiv 1705.09056), with each step's mix after its local step. `links` are those of the
    topology; a ring if every rank has links to all others, or if the links are unknown. `push_sum` is SGP (Assran et
    al., 2019, arXiv 1811.10792), which is also right if links go one way only; `global_every` is Gossip-PGA (Chen et
    al., 2021, arXiv 2105.09080). A rank sends P bytes (P: bytes of all parameters) to each of its neighbours, one hop
    away: to two in a ring, to one in the exponential graph. In an average over all N ranks (instead of the mix every
    `global_every` steps, and once more after the last step) it sends 2(N-1)/N · P. Ranks agree on nothing otherwise;
    rank 0's own parameters are tested, or the average with `--eval after`.
    """

    of_this_run: ClassVar[frozenset[str]] = frozenset({"_links"})

    graph: str = option("links", "who sends to whom", choices=GRAPHS)
    push_sum: bool = option(False, "use push-sum (SGP), also correct on one-way links")
    global_every: int = option(0, "steps between two averages over all ranks; 0: never", at_least=0)

    def setup(self, model: "nn.Module", optimizer: "Optimizer", comm: "Comm", seed: int) -> None:
        """Tell the other ranks which links this one has."""
        super().setup(model, optimizer, comm, seed)
        self._links = self._gather_links() if self.graph == "links" else []
        # Push-sum's numerator and denominator; the model's parameters are their quotient.
        self._sum = self.flat_parameters()
        self._weight = 1.0
        self._mixed = self._sum

    def step(self, step: int) -> None:
        """Step locally, then mix."""
        self.optimizer.step()
        own = self.flat_parameters()
        if self.push_sum:
            own = self._sum + own - self._mixed
        if self.global_every and step % self.global_every == 0:
            self._average(own)
        else:
            self._mix(own, self._graph(step))

    def finish(self, step: int) -> None:
        """Average all parameters over all ranks."""
        self._average(self._sum if self.push_sum else self.flat_parameters())

    def _mix(self, own: "Tensor", graph: graphs.Graph) -> None:
        """Mix with the neighbours; with push-sum, the weight travels as one more number."""
        rank = self.comm.rank
        mine = own.new_empty(len(own) + self.push_sum)
        mine[: len(own)] = own
        if self.push_sum:
            mine[-1] = self._weight
        arrived = {peer: mine.new_empty(len(mine)) for peer in graphs.senders(graph, rank)}
        self.comm.exchange(dict.fromkeys(sorted(graph[rank]), mine), arrived)
        arrived[rank] = mine
        mix = mine.new_zeros(len(mine))
        for peer, weight in graphs.weights(graph, rank, push_sum=self.push_sum).items():
            mix.add_(arrived[peer], alpha=weight)
        self._keep(mix[: len(own)], float(mix[-1]) if self.push_sum else 1.0)

    def _average(self, own: "Tensor") -> None:
        """Average over all ranks. The weights sum to the number of ranks, so that each is 1 again."""
        self._keep(self.comm.start_average(own)(), 1.0)

    def _keep(self, total: "Tensor", weight: float) -> None:
        self._sum, self._weight = total, weight
        self._mixed = total / weight
        self.load_parameters(self._mixed)

    def _graph(self, step: int) -> graphs.Graph:
        size = self.comm.world_size
        if self.graph == "exponential":
            return graphs.exponential(size, step)
        if self.graph == "complete":
            return graphs.complete(size)
        return self._links or graphs.ring(size)

    def _gather_links(self) -> graphs.Graph:
        """Return every rank's neighbours; empty if each has links to all others."""
        import torch

        size, rank = self.comm.world_size, self.comm.rank
        mine = torch.zeros(size, dtype=torch.uint8, device=self.parameters[0].device)
        mine[list(self.comm.neighbours or graphs.complete(size)[rank])] = 1
        rows = self.comm.all_gather(mine, purpose="control").tolist()
        links = [frozenset(r for r, linked in enumerate(row) if linked) for row in rows]
        return links if links != graphs.complete(size) else []
