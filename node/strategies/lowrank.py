"""PowerSGD's compression: one gradient matrix as the product of two thin ones."""

import torch
from torch import Tensor


class LowRank:
    """The state of one matrix: its right factor, and the error of what was sent so far.

    Args:
        shape: (rows, columns).
        rank: columns of each factor.
        like: a tensor with the dtype and device to use.
        generator: draws the first right factor; in the same state on every rank.
    """

    def __init__(
        self, shape: tuple[int, int], rank: int, like: Tensor, generator: torch.Generator
    ) -> None:
        self._error = like.new_zeros(shape)
        self.right = torch.randn(shape[1], rank, generator=generator, dtype=like.dtype)
        self.right = self.right.to(like.device)

    def compress(self, gradient: Tensor) -> Tensor:
        """Return this rank's left factor, (rows, rank), of a gradient and the error left from earlier ones."""
        self._matrix = gradient.reshape(self._error.shape) + self._error
        return self._matrix @ self.right

    def project(self, left: Tensor) -> Tensor:
        """Return this rank's right factor, (columns, rank), for the mean of all left factors."""
        self.left = torch.linalg.qr(left).Q
        self.right = self._matrix.T @ self.left
        self._error = self._matrix - self.left @ self.right.T
        return self.right

    def gradient(self, right: Tensor) -> Tensor:
        """Return the mean gradient, (rows, columns), from the mean of all right factors, which is kept."""
        self.right = right.clone()
        return self.left @ self.right.T


def matrix_shape(tensor: Tensor) -> tuple[int, int]:
    """Return the shape of a tensor as a matrix: its first dimension, and all others together."""
    rows = tensor.shape[0] if tensor.ndim else 1
    return rows, tensor.numel() // max(1, rows)
