"""Quantisation of averages: fp16, bf16 or int8.

Half-precision numbers (fp16, bf16) are added on the way by the ring all-reduce, in their own precision: half of the
bytes. Eight-bit numbers cannot be added that way: every rank gets its part of all ranks' numbers (all-to-all), adds
them in full precision, and sends the mean, again in eight bits, to all (all-gather): 2(N-1)/N · S/4, plus a scale for
every ROW of them, 1.6 % more. All ranks get the same bits. The all-gather begins only when the mean is waited for: if
an average overlaps with computing, only its first half does. As in torchft's quantised all-reduce, without its
kernels.
"""

import torch
from torch import Tensor

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
ROW = 256  # numbers that share a scale
SCALE_BYTES = 4


def quantise(numbers: Tensor) -> Tensor:
    """Quantise to eight bits a number: each is wrong by at most 1/254 of the largest of its row.

    Args:
        numbers: shape (rows · ROW,).

    Returns:
        uint8, shape (rows · (ROW + SCALE_BYTES),): each row's whole numbers, then its scale.
    """
    rows = numbers.view(-1, ROW)
    scales = (rows.abs().amax(1, keepdim=True) / 127).float()
    whole = (rows / scales.clamp_min(1e-38)).round().to(torch.int8)
    return torch.cat([whole.view(torch.uint8), scales.view(torch.uint8)], 1).view(-1)


def dequantise(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers, shape (rows · ROW,), from which `quantise` has made these bytes."""
    rows = packed.view(-1, ROW + SCALE_BYTES)
    whole, scales = rows[:, :ROW].view(torch.int8), rows[:, ROW:].contiguous().view(torch.float32)
    return (whole.to(dtype) * scales).view(-1).to(dtype)
