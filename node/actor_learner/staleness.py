"""The age of experience: in updates that its policy did not include when it is learnt, and in seconds.

All nodes of one host share a clock. On several hosts, seconds are wrong by the difference of the clocks.
"""

import numpy as np

from node.transport.messages import Experience, require_arrays

MOST_VALUES = 20_000
MOST_VERSIONS = 10_000  # whose publication time is kept
MOST_TIME_S = 1e11
QUANTILES = {"median": 0.5, "p95": 0.95}


class Distribution:
    """Summarises values and keeps a bounded sample of them: in a long run, every second, fourth, … value."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride = 1
        self._count = 0
        self._sum = 0.0
        self._largest = 0.0

    def add(self, counted: np.ndarray | float) -> None:
        """Add one value, or values of shape (number,)."""
        values = np.atleast_1d(np.asarray(counted, float))
        if not len(values):
            return
        first = -self._count % self._stride
        self._kept += values[first :: self._stride].tolist()
        self._count += len(values)
        self._sum += float(values.sum())
        self._largest = max(self._largest, float(values.max()))
        while len(self._kept) > MOST_VALUES:
            self._kept = self._kept[::2]
            self._stride *= 2

    def figures(self) -> dict[str, float]:
        """Return mean, median, p95 and max; nothing if there are no values."""
        if not self._count:
            return {}
        found = np.quantile(self._kept, list(QUANTILES.values()))
        figures = {name: round(float(v), 4) for name, v in zip(QUANTILES, found, strict=True)}
        return {
            "mean": round(self._sum / self._count, 4),
            **figures,
            "max": round(self._largest, 4),
        }


class Staleness:
    """The staleness of all experience that a learner received, over steps.

    Steps by the first version are counted only in updates: its age is unknown, and no version is newer until the first
    update.
    """

    def __init__(self) -> None:
        self._updates, self._seconds, self._age_s = (Distribution() for _ in range(3))
        self._age_s_of: dict[int, Distribution] = {}
        self._made_at_s: dict[int, float] = {}  # of each published version

    def publish(self, version: int, now_s: float) -> None:
        """Note that a version of the weights was published at this Unix time."""
        self._made_at_s[version] = now_s if self._made_at_s else np.nan
        if len(self._made_at_s) > MOST_VERSIONS:
            del self._made_at_s[next(iter(self._made_at_s))]

    def add(self, rank: int, experience: Experience, update: int, now_s: float) -> None:
        """Count experience of a rank that arrived at this Unix time, to be learnt after `update` updates or later."""
        versions = experience.arrays["version"]
        self._updates.add(np.maximum(0, update - versions))
        made_at_s = np.array([self._made_at_s.get(int(v), np.nan) for v in versions])
        known = ~np.isnan(made_at_s)
        age_s = experience.arrays["made_at_s"][known] - made_at_s[known]
        self._seconds.add(now_s - made_at_s[known])
        self._age_s.add(age_s)
        self._age_s_of.setdefault(rank, Distribution()).add(age_s)

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the distributions of staleness, in updates and seconds, and of the age of the weights.

        Staleness is counted from the weights that acted: in updates to the first one that can learn their experience,
        in seconds to its arrival. `weights_age_s` is their age when they acted.
        """
        return {
            "staleness_updates": self._updates.figures(),
            "staleness_s": self._seconds.figures(),
            "weights_age_s": self._age_s.figures(),
        }

    def mean_age_s(self, rank: int) -> dict[str, float]:
        """Return the mean age of a rank's weights when they acted; nothing if it is unknown."""
        figures = self._age_s_of.get(rank, Distribution()).figures()
        return {"weights_age_s": figures["mean"]} if figures else {}


def oldest_lag(experience: Experience, update: int) -> int:
    """Return how many updates the oldest policy that made this experience is behind after `update` updates."""
    return int(update - experience.arrays["version"].min())


def require_times(experience: Experience, update: int) -> None:
    """Check that experience has valid versions and times.

    Raises:
        ValueError: a version does not exist yet, or a time is invalid.
    """
    steps = np.size(experience.arrays.get("version", ()))
    spec = {"version": (np.int64, (steps,)), "made_at_s": (np.float64, (steps,))}
    require_arrays(experience.arrays, spec)
    versions, times = experience.arrays["version"], experience.arrays["made_at_s"]
    if (
        not steps
        or versions.min() < 0
        or versions.max() > update
        or np.abs(times).max() > MOST_TIME_S
    ):
        raise ValueError("experience of no version, or at no time")
