"""What values should have been: n steps of rewards, and what is said to come after."""

import numpy as np


def n_step_targets(
    rewards: np.ndarray, values: np.ndarray, steps: int, gamma: float, *, ended: bool
) -> np.ndarray:
    """For each moment t of an episode's piece: the rewards of the next `steps`, and the value of where they lead to.

    Where the piece ends earlier: fewer rewards, and the value of its last moment, or none if the episode ended there.

    Args:
        rewards: of each step, shape (length, …).
        values: of each moment and the one after the last step, shape (length + 1, …): of the best action, say.
        steps: at least 1.
        gamma: discount.
        ended: whether the episode ended, and so nothing follows, with the last step.

    Returns:
        Shape (length, …).
    """
    length = len(rewards)
    targets = np.zeros_like(rewards)
    for t in range(length):
        upto = min(t + steps, length)
        for k in range(t, upto):
            targets[t] += gamma ** (k - t) * rewards[k]
        if not (ended and upto == length):
            targets[t] += gamma ** (upto - t) * values[upto]
    return targets
