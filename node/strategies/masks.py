"""Subsets of the parameters, a different one each time, and the same on every rank."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from node.dist.comm import Comm


class Masks:
    """Draws which parameters are averaged after a step, from seed and step: no mask is sent.

    Args:
        size: number of parameters.
        p: share of them per draw.
        selector: `random`: each with probability p; `partition`: all of them in ⌈1/p⌉ draws of equal size, in a new
            order each time, as in EXO Gym.
        seed: the same on every rank.
    """

    def __init__(self, size: int, p: float, selector: str, seed: int) -> None:
        self._size = size
        self._p = p
        self._selector = selector
        self._seed = seed
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def draw(self, step: int) -> Tensor:
        """Return indices of parameters, int64, in any order."""
        if self._selector == "random":
            drawn = torch.rand(self._size, generator=self._generator(step)) < self._p
            return drawn.nonzero().squeeze(1)
        draws = math.ceil(round(1 / self._p, 6))
        cycle, place = divmod(step - 1, draws)
        if self._order[0] != cycle:
            order = torch.randperm(self._size, generator=self._generator(cycle))
            self._order = cycle, order
        return self._order[1][slice(*_bounds(self._size, draws, place))]

    def average(self, comm: "Comm", flat: Tensor, step: int) -> None:
        """Average the parameters that are drawn for this step over all ranks, in place."""
        indices = self.draw(step).to(flat.device)
        if len(indices):
            with comm.varying_sizes():
                flat[indices] = comm.start_average(flat[indices])()

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed + 1_000_003 * number)


def _bounds(size: int, parts: int, number: int) -> tuple[int, int]:
    """Return where a part begins and ends if `size` is cut as by tensor_split, which would make every part."""
    each, left = divmod(size, parts)
    begin = number * each + min(number, left)
    return begin, begin + each + (number < left)
