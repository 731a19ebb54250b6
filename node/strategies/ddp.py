"""Data-parallel training: every step averages the gradients."""

from dataclasses import dataclass

from node.strategies.base import Strategy


@dataclass
class DDP(Strategy):
    """Average the gradients every step: as one process with all ranks' batches together.

    A rank sends 2(N-1)/N · P bytes a step (P: bytes of all parameters), in one all-reduce.
    """

    def step(self, step: int) -> None:
        """Average, then step."""
        self.comm.average([p.grad for p in self.parameters])
        self.optimizer.step()
