"""One gradient matrix as the product of two thin ones: what PowerSGD sends of it."""

import torch
from torch import Tensor


class LowRank:
    """The state of one matrix: its right factor, and what has not been sent of it.

    Args:
        shape: (rows, columns).
        rank: columns of each factor.
        like: a tensor of the dtype and device.
        generator: draws the first right factor; in the same state on every rank.
    """

    def __init__(
        self, shape: tuple[int, int], rank: int, like: Tensor, generator: torch.Generator
    ) -> None:
        self._error = like.new_zeros(shape)
        self.right = torch.randn(shape[1], rank, generator=generator, dtype=like.dtype)
        self.right = self.right.to(like.device)

    def compress(self, gradient: Tensor) -> Tensor:
        """This rank's left factor, (rows, rank), of a gradient and what was left of those before."""
        self._matrix = gradient.reshape(self._error.shape) + self._error
        return self._matrix @ self.right

    def project(self, left: Tensor) -> Tensor:
        """This rank's right factor, (columns, rank), for the mean of all left ones."""
        self.left = torch.linalg.qr(left).Q
        self.right = self._matrix.T @ self.left
        self._error = self._matrix - self.left @ self.right.T
        return self.right

    def gradient(self, right: Tensor) -> Tensor:
        """The mean gradient, (rows, columns), by the mean of all right factors, which is kept."""
        self.right = right.clone()
        return self.left @ self.right.T


def matrix_shape(tensor: Tensor) -> tuple[int, int]:
    """A tensor as a matrix: its first dimension, and all others together."""
    rows = tensor.shape[0] if tensor.ndim else 1
    return rows, tensor.numel() // max(1, rows)
