"""DeMo's compression: tensors in chunks, transformed into cosine waves; only the largest are kept."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Chunks:
    """One tensor, as a matrix, cut into chunks of equal size.

    The height and width of a chunk are the largest divisors of the matrix's rows and columns that do not exceed
    `chunk`. An orthonormal DCT-II transforms it along both dimensions.

    Args:
        like: the tensor, for its shape, dtype and device; one of more than two dimensions counts as a matrix of its
            first dimension and all others.
        chunk: largest number of rows and columns; its square must fit into an int16.
        k: number of waves kept per chunk, at most all.
    """

    def __init__(self, like: Tensor, chunk: int, k: int) -> None:
        rows = like.shape[0] if like.ndim > 1 else 1
        columns = like.numel() // max(1, rows)
        self._shape = like.shape
        self._height, self._width = divisor(rows, chunk), divisor(columns, chunk)
        self._tall, self._wide = rows // self._height, columns // self._width
        self._left, self._right = (cosines(size).to(like) for size in (self._height, self._width))
        self.count = self._tall * self._wide
        self.size = self._height * self._width
        self.kept = min(k, self.size)

    def largest(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest waves of every chunk.

        Returns:
            Values and their places in the chunk, int16; both of shape (chunks, kept).
        """
        cut = tensor.reshape(self._tall, self._height, self._wide, self._width).transpose(1, 2)
        waves = (self._left @ cut @ self._right.T).reshape(self.count, self.size)
        places = waves.abs().topk(self.kept, sorted=False).indices
        return waves.gather(1, places), places.to(torch.int16)

    def tensor(self, values: Tensor, places: Tensor) -> Tensor:
        """Return the tensor that these waves add up to.

        Args:
            values: shape (chunks, any number); values at the same place are averaged.
            places: the same shape, int16.
        """
        at = places.long()
        waves = values.new_zeros(self.count, self.size).scatter_reduce_(
            1, at, values, "mean", include_self=False
        )
        cut = waves.view(self._tall, self._wide, self._height, self._width)
        back = self._left.T @ cut @ self._right
        return back.transpose(1, 2).reshape(self._shape)


def cosines(size: int) -> Tensor:
    """Return the orthonormal DCT-II, shape (size, size), float64: one wave per row."""
    place = torch.arange(size, dtype=torch.float64)
    waves = torch.cos(math.pi / size * (place + 0.5) * place.unsqueeze(1)) * math.sqrt(2 / size)
    waves[0] /= math.sqrt(2)
    return waves


def divisor(number: int, limit: int) -> int:
    """Return the largest divisor of a number that does not exceed a limit."""
    return next(d for d in range(min(limit, max(1, number)), 0, -1) if number % d == 0)


def pack(values: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Return all values, then all places, as bytes of shape (bytes,)."""
    flat = [torch.cat([t.reshape(-1) for t in tensors]) for tensors in (values, places)]
    return torch.cat([t.view(torch.uint8) for t in flat])


def unpack(packed: Tensor, chunks: Sequence[Chunks], dtype: torch.dtype) -> list[Tensor]:
    """Return what `pack` packed on each of several ranks.

    Args:
        packed: shape (ranks, bytes).
        chunks: the chunks of the tensors that were packed.
        dtype: dtype of the values.

    Returns:
        Values and places of the first tensor, of the second, …; each of shape (chunks, ranks · kept).
    """
    ranks = len(packed)
    numbers = [c.count * c.kept for c in chunks]
    split = sum(numbers) * dtype.itemsize
    values = packed[:, :split].reshape(-1).view(dtype).view(ranks, -1)
    places = packed[:, split:].reshape(-1).view(torch.int16).view(ranks, -1)
    pairs = zip(values.split(numbers, 1), places.split(numbers, 1), strict=True)
    return [
        piece.reshape(ranks, c.count, c.kept).transpose(0, 1).reshape(c.count, -1)
        for c, pair in zip(chunks, pairs, strict=True)
        for piece in pair
    ]
