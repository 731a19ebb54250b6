"""Tests that numbers sent in fewer bits lose the precision that the codec's name says, and no more."""

import time

import pytest
import torch

from node.accounting.metrics import Clock
from node.dist.codec import ROW, dequantise, quantise
from node.dist.comm import Comm


def averaged(ranks, number, codec):
    """Return the average of a number that all ranks have."""
    comm = Comm(ranks, Clock(time.perf_counter()))
    return comm.start_average(torch.tensor([number], dtype=torch.float32), codec)().item()


@pytest.mark.parametrize(
    ("codec", "number", "arrives"),
    [
        ("fp16", 1 + 2**-10, 1 + 2**-10),  # 10 mantissa bits, 5 exponent bits
        ("fp16", 2.0**20, float("inf")),
        ("bf16", 1 + 2**-10, 1.0),  # 7 and 8
        ("bf16", 2.0**20, 2.0**20),
        ("none", 2.0**20 + 0.125, 2.0**20 + 0.125),
    ],
)
def test_half_numbers_travel_as_what_they_are_called(pools, codec, number, arrives):
    assert pools(2).run(averaged, number, codec) == [arrives] * 2


@pytest.mark.computes
def test_eight_bits_are_off_by_half_a_step_at_most():
    numbers = torch.randn(8 * ROW, generator=torch.Generator().manual_seed(3))
    off = (dequantise(quantise(numbers), numbers.dtype) - numbers).view(-1, ROW).abs().amax(1)
    largest = numbers.view(-1, ROW).abs().amax(1)
    assert (off <= largest / 254 * (1 + 1e-5)).all()
