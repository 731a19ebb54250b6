"""Which settings are trained: harder ones open when easier ones are mastered."""

from collections import deque
from dataclasses import dataclass

LATEST = 200  # episodes of a setting that decide
PASSED = 0.9
LARGER_BY = 5
Setting = tuple[int, int]
"""How many agents, on a map of how many rows and columns."""


@dataclass(frozen=True)
class Goal:
    """Where a curriculum ends.

    Attributes:
        first: the setting that it begins with.
        agents: the most there shall be.
        size: the largest map.
    """

    first: Setting
    agents: int
    size: int

    def __post_init__(self) -> None:
        """Refuse what no step leads to: a ValueError."""
        agents, size = self.first
        if self.agents < agents or self.size < size or (self.size - size) % LARGER_BY:
            raise ValueError(
                f"a curriculum from {agents} agents and {size} rows goes to as many or more,"
                f" in steps of {LARGER_BY} rows, not to {self.agents} agents and {self.size} rows"
            )


class Curriculum:
    """DHC's: where 90 % of a setting's latest 200 episodes are solved, an agent more and a larger map are open."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._results: dict[Setting, deque[bool]] = {goal.first: deque(maxlen=LATEST)}

    @property
    def settings(self) -> list[Setting]:
        """Those that are open, easiest first."""
        return sorted(self._results)

    def add(self, setting: Setting, solved: bool) -> None:  # noqa: FBT001
        """Count an episode; what it opens is there from now on."""
        results = self._results.setdefault(setting, deque(maxlen=LATEST))
        results.append(solved)
        if self.has_passed(setting):
            agents, size = setting
            for harder in ((agents + 1, size), (agents, size + LARGER_BY)):
                if harder[0] <= self._goal.agents and harder[1] <= self._goal.size:
                    self.open(harder)

    def open(self, setting: Setting) -> None:
        """Let a setting be trained, whatever was mastered."""
        self._results.setdefault(setting, deque(maxlen=LATEST))

    def success(self, setting: Setting) -> float:
        """Share of its latest episodes that were solved; 0 before there are any."""
        results = self._results.get(setting)
        return sum(results) / len(results) if results else 0.0

    def has_passed(self, setting: Setting) -> bool:
        """Whether it is mastered."""
        results = self._results.get(setting, deque())
        return len(results) == LATEST and self.success(setting) >= PASSED

    @property
    def is_done(self) -> bool:
        """Whether all numbers of agents have mastered the largest map."""
        numbers = range(self._goal.first[0], self._goal.agents + 1)
        return all(self.has_passed((agents, self._goal.size)) for agents in numbers)
