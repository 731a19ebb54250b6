"""How path finding is learnt."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LearningSettings:
    """Of a learner.

    Attributes:
        capacity: episodes that are kept.
        most_steps: of an episode.
        sequence: steps that are learnt at a time.
        burn_in: steps before those, over which memory is brought up to date.
        n_steps: of a target.
        gamma: discount.
        target_every: updates between copies to the target network.
        learn_after: steps that must be there before the first update.
        all_agents: whether all agents' values are learnt, or the first agent's alone, as in DHC.
    """

    capacity: int
    most_steps: int
    sequence: int
    burn_in: int
    n_steps: int
    gamma: float
    target_every: int
    learn_after: int
    all_agents: bool
