"""Compares the datasets that a script makes on a rank with those that it made where fit was called, by some samples.

Numbers may differ a little, because decoders of pictures and versions of torch do; texts may in the folders of paths.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from node.tasks.draws import fixed_draws

LOOKS = 8  # samples of each dataset
MOST_NUMBERS = 1024  # of each part of a sample
TOLERANCE = 0.01  # of the largest number of a part

Sample = list[Tensor | str]


def some_samples(datasets: Sequence[Any]) -> list[Sample | None]:
    """Return samples from the first to the last of each dataset; None for one that differs each time it is read."""
    return [_read(data, number) for data in datasets for number in _numbers(len(data))]


def are_alike(there: Sequence[Sample | None], here: Sequence[Sample | None]) -> bool:
    """Return whether two results of `some_samples` are of the same datasets."""
    return len(there) == len(here) and all(
        one is None or other is None or _alike(one, other)
        for one, other in zip(there, here, strict=True)
    )


def _numbers(size: int) -> list[int]:
    """Return at most LOOKS numbers of samples, evenly spread."""
    return sorted({round(look * (size - 1) / (LOOKS - 1)) for look in range(LOOKS)})


def _read(dataset: Any, number: int) -> Sample | None:  # noqa: ANN401
    read = []
    for _ in range(2):
        with fixed_draws():  # a sample may be augmented
            read.append(list(_parts(dataset[number])))
    return read[0] if _alike(*read) else None


def _parts(sample: Any) -> Iterator[Tensor | str]:  # noqa: ANN401
    """Yield the numbers of a sample, as float64 of shape (at most MOST_NUMBERS,), and its texts."""
    if isinstance(sample, Mapping):
        sample = list(sample.values())
    if isinstance(sample, str):
        yield sample.rpartition("/")[2]
    elif isinstance(sample, tuple | list):
        for part in sample:
            yield from _parts(part)
    else:
        yield from _as_numbers(sample)


def _as_numbers(part: Any) -> Iterator[Tensor]:  # noqa: ANN401
    try:
        flat = torch.as_tensor(part).detach().cpu().flatten()
    except (TypeError, ValueError, RuntimeError):
        return  # default_collate does not take it either, or it is bytes
    some = torch.linspace(0, max(0, len(flat) - 1), min(len(flat), MOST_NUMBERS)).long()
    yield flat[some].abs().double() if flat.is_complex() else flat[some].double()


def _alike(one: Sample, other: Sample) -> bool:
    return len(one) == len(other) and all(map(_near, one, other))


def _near(one: Tensor | str, other: Tensor | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    if one.shape != other.shape:
        return False
    most = one.abs().nan_to_num(posinf=0.0).max().item() if len(one) else 0.0
    is_near: bool = torch.allclose(one, other, rtol=0.0, atol=TOLERANCE * most, equal_nan=True)
    return is_near
