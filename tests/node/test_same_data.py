"""Whether a rank's datasets are those of the script that called fit: by some samples, and without disturbing a draw."""

import random

import numpy
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from node.exogym.same_data import are_alike, some_samples


class Samples(Dataset):
    """A dataset whose samples a function makes."""

    def __init__(self, make, size=100):
        self._make, self._size = make, size

    def __len__(self):
        return self._size

    def __getitem__(self, number):
        return self._make(number)


def alike(one, other):
    return are_alike(some_samples([one]), some_samples([other]))


def rows(order):
    return TensorDataset(torch.arange(1000.0)[torch.tensor(order)])


def test_samples_in_another_order_are_other_data():
    order = list(range(1000))
    shuffled = random.Random(1).sample(order, 1000)
    assert alike(rows(order), rows(order))
    assert not alike(rows(order), rows(shuffled))
    assert not alike(rows(order[:900]), rows(order[100:]))
    assert are_alike(some_samples([rows([3]), rows([4])]), some_samples([rows([3]), rows([4])]))
    assert not are_alike(some_samples([rows([3]), rows([4])]), some_samples([rows([3])]))


def test_samples_by_name_and_in_any_form_are_compared():
    def make(number):
        return {"x": numpy.full(3, number), "y": (number, f"/data/{number}.png"), "z": b"bytes"}

    one = Samples(make)
    assert alike(one, Samples(lambda n: make(n) | {"y": (n, f"/root/work/{n}.png")}))
    assert not alike(one, Samples(lambda n: make(n) | {"y": (n, f"/data/{n}.jpg")}))
    assert not alike(one, Samples(lambda n: make(n) | {"y": (n + 1, f"/data/{n}.png")}))
    assert not alike(one, Samples(lambda n: make(n) | {"x": numpy.full(4, n)}))


def test_a_picture_may_be_one_shade_off_and_a_number_in_its_last_bits():
    shades = Samples(lambda n: torch.full((3, 8, 8), 150 + n, dtype=torch.uint8))
    off = Samples(lambda n: shades[n] + 1)
    darker = Samples(lambda n: shades[n] - 9)
    assert alike(shades, off) and not alike(shades, darker)
    waves = Samples(lambda n: torch.tensor([n, float("nan"), 1e9]).sin())
    assert alike(waves, Samples(lambda n: waves[n] * (1 + 1e-6)))


@pytest.mark.parametrize("draw", [torch.rand, lambda n: random.random(), numpy.random.rand])
def test_augmented_samples_are_drawn_alike_and_no_draw_is_lost(draw):
    augmented = Samples(lambda n: torch.arange(3.0) + n + 0.5 * torch.as_tensor(draw(1)))
    random.seed(5), numpy.random.seed(5), torch.manual_seed(5)
    wanted = draw(1)
    random.seed(5), numpy.random.seed(5), torch.manual_seed(5)
    first = some_samples([augmented])
    assert draw(1) == wanted
    assert None not in first and are_alike(first, some_samples([augmented]))


def test_a_sample_that_nobody_can_draw_again_is_not_compared():
    generator = numpy.random.default_rng()
    strange = Samples(lambda n: generator.random(3))
    assert some_samples([strange]) == [None] * 8
    assert alike(strange, strange)
