"""How old experience is: in updates of the learner that its policy had not seen, and in seconds.

All nodes of one host share a clock. On several hosts seconds are off by as much as their clocks are.
"""

import numpy as np

from node.transport.messages import Experience, require_arrays

MOST_VALUES = 20_000
MOST_VERSIONS = 10_000  # whose time is known
MOST_TIME_S = 1e11
QUANTILES = {"median": 0.5, "p95": 0.95}


class Distribution:
    """Of more values than are kept: of a long run every second, fourth, … one."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride = 1
        self._count = 0
        self._sum = 0.0
        self._largest = 0.0

    def add(self, counted: np.ndarray | float) -> None:
        """Count these, shape (number,), or this."""
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
        """Mean, median, p95 and max; nothing where there is no value."""
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
    """Of all experience that came to a learner, step by step.

    Steps by the first version are counted in updates alone: nobody knows how old that is, and until the first update
    there is none newer.
    """

    def __init__(self) -> None:
        self._updates, self._seconds, self._age_s = (Distribution() for _ in range(3))
        self._age_s_of: dict[int, Distribution] = {}
        self._made_at_s: dict[int, float] = {}  # of each version that was published

    def publish(self, version: int, now_s: float) -> None:
        """A version of the weights is there, from this Unix time on."""
        self._made_at_s[version] = now_s if self._made_at_s else np.nan
        if len(self._made_at_s) > MOST_VERSIONS:
            del self._made_at_s[next(iter(self._made_at_s))]

    def add(self, rank: int, experience: Experience, update: int, now_s: float) -> None:
        """Experience of a rank has come, when the learner had made so many updates, at this Unix time."""
        versions = experience.arrays["version"]
        self._updates.add(np.maximum(0, update - versions))
        made_at_s = np.array([self._made_at_s.get(int(v), np.nan) for v in versions])
        known = ~np.isnan(made_at_s)
        age_s = experience.arrays["made_at_s"][known] - made_at_s[known]
        self._seconds.add(now_s - made_at_s[known])
        self._age_s.add(age_s)
        self._age_s_of.setdefault(rank, Distribution()).add(age_s)

    def figures(self) -> dict[str, dict[str, float]]:
        """Distributions: updates, and seconds, from the weights that acted to the arrival of what they did.

        And `weights_age_s`, the seconds until they acted.
        """
        return {
            "staleness_updates": self._updates.figures(),
            "staleness_s": self._seconds.figures(),
            "weights_age_s": self._age_s.figures(),
        }

    def mean_age_s(self, rank: int) -> dict[str, float]:
        """How old a rank's weights were when they acted, on average; nothing where nobody knows."""
        figures = self._age_s_of.get(rank, Distribution()).figures()
        return {"weights_age_s": figures["mean"]} if figures else {}


def oldest_lag(experience: Experience, update: int) -> int:
    """How many updates the oldest of the policies that made it had not seen."""
    return int(update - experience.arrays["version"].min())


def require_times(experience: Experience, update: int) -> None:
    """See that experience says what made it, and when.

    Raises:
        ValueError: by a version that there was not yet, or at no time.
    """
    steps = len(experience.arrays.get("version", ()))
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
