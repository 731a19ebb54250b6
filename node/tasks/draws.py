"""The random generators that libraries share: Python's, torch's and numpy's. A user's task may draw from any of them.

They are seeded, saved and restored together, so that none of them makes ranks alike, or a resumed run another one.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from node.tasks.saved import SavedDraws

NUMPY_SEEDS = 2**32  # how many there are: from 0


def seed_draws(seed: int) -> None:
    """Seed all generators, those of GPUs too."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % NUMPY_SEEDS)


def save_draws(device: torch.device) -> SavedDraws:
    """Return the states of all generators; of GPUs only that of `device`."""
    state: Any = np.random.get_state()  # a tuple, whose type numpy's versions state differently
    name, key, *rest = state
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": random.getstate(),
        "numpy": (name, key.tolist(), *rest),
    }


def restore_draws(saved: SavedDraws, device: torch.device) -> None:
    """Go on from what `save_draws` returned, here or in another run."""
    torch.set_rng_state(saved["torch"].cpu())
    if saved["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda"].cpu(), device)
    random.setstate(saved["python"])
    if saved["numpy"] is not None:
        np.random.set_state(saved["numpy"])


@contextmanager
def kept_draws(device: torch.device) -> Iterator[None]:
    """Let the generators go on afterwards as if nothing had been drawn meanwhile."""
    saved = save_draws(device)
    try:
        yield
    finally:
        restore_draws(saved, device)


@contextmanager
def fixed_draws() -> Iterator[None]:
    """Draw the same numbers each time, except on GPUs; afterwards go on as if nothing had been drawn."""
    with kept_draws(torch.device("cpu")):
        torch.default_generator.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        yield
