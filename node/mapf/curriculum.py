"""The settings to train: harder ones open when easier ones are mastered."""

from collections import deque
from dataclasses import dataclass

LATEST = 200  # latest episodes of a setting, which decide
PASSED = 0.9
LARGER_BY = 5
Setting = tuple[int, int]
"""The number of agents, and of rows and columns of the map."""


@dataclass(frozen=True)
class Goal:
    """The first and the hardest setting of a curriculum.

    Attributes:
        first: the first setting.
        agents: the largest number of agents.
        size: rows of the largest map.
    """

    first: Setting
    agents: int
    size: int

    def __post_init__(self) -> None:
        """Raise ValueError if the curriculum cannot reach these limits."""
        agents, size = self.first
        if self.agents < agents or self.size < size or (self.size - size) % LARGER_BY:
            raise ValueError(
                f"a curriculum from {agents} agents and {size} rows goes to as many or more,"
                f" in steps of {LARGER_BY} rows, not to {self.agents} agents and {self.size} rows"
            )


class Curriculum:
    """DHC's curriculum: solving 90 % of a setting's latest 200 episodes opens one more agent and a larger map."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._results: dict[Setting, deque[bool]] = {goal.first: deque(maxlen=LATEST)}

    @property
    def settings(self) -> list[Setting]:
        """The open settings, easiest first."""
        return sorted(self._results)

    def add(self, setting: Setting, solved: bool) -> None:  # noqa: FBT001
        """Count an episode, and open the settings that it unlocks."""
        results = self._results.setdefault(setting, deque(maxlen=LATEST))
        results.append(solved)
        if self.has_passed(setting):
            agents, size = setting
            for harder in ((agents + 1, size), (agents, size + LARGER_BY)):
                if harder[0] <= self._goal.agents and harder[1] <= self._goal.size:
                    self.open(harder)

    def open(self, setting: Setting) -> None:
        """Open a setting, regardless of what was mastered."""
        self._results.setdefault(setting, deque(maxlen=LATEST))

    def success(self, setting: Setting) -> float:
        """Return the share of its latest episodes that were solved; 0 if there are none."""
        results = self._results.get(setting)
        return sum(results) / len(results) if results else 0.0

    def has_passed(self, setting: Setting) -> bool:
        """Return whether a setting is mastered."""
        results = self._results.get(setting, deque())
        return len(results) == LATEST and self.success(setting) >= PASSED

    @property
    def is_done(self) -> bool:
        """Whether the largest map is mastered with every number of agents."""
        numbers = range(self._goal.first[0], self._goal.agents + 1)
        return all(self.has_passed((agents, self._goal.size)) for agents in numbers)
