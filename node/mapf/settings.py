"""Settings of how path finding is learnt."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LearningSettings:
    """Settings of a learner.

    Attributes:
        capacity: episodes that are kept.
        most_steps: the most steps of an episode.
        sequence: steps of a learnt sequence.
        burn_in: steps before a sequence that only bring memory up to date.
        n_steps: steps of an n-step target.
        gamma: discount.
        target_every: updates between copies to the target network.
        learn_after: steps that must have arrived before the first update.
        average: share of the average of the networks so far that each update keeps.
        all_agents: whether all agents' values are learnt, or only the first agent's, as in DHC.
    """

    capacity: int
    most_steps: int
    sequence: int
    burn_in: int
    n_steps: int
    gamma: float
    target_every: int
    learn_after: int
    average: float
    all_agents: bool
