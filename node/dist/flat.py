"""Flattens many tensors into one, so that they are one message."""

from collections.abc import Sequence

import torch
from torch import Tensor


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return a copy of all tensors as one of shape (elements of all,)."""
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def unflatten_into(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the pieces of `flat` into tensors of the shapes it was made from."""
    pieces = flat.split([t.numel() for t in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.detach().copy_(piece.view_as(tensor))


def to_bytes(tensors: Sequence[Tensor]) -> bytes:
    """Return the values of all tensors as bytes, one after the other."""
    data: bytes = flatten(tensors).cpu().view(torch.uint8).numpy().tobytes()
    return data
