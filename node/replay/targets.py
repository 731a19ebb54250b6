"""Targets of values: n steps of rewards, and the estimated value of what comes after."""

import numpy as np


def n_step_targets(
    rewards: np.ndarray, values: np.ndarray, steps: int, gamma: float, *, ended: bool
) -> np.ndarray:
    """Return, for each moment t of a piece, the next `steps` rewards, discounted, plus the value of where they lead.

    If the piece ends earlier: fewer rewards, and the value of its last moment, or none if the episode ended there.

    Args:
        rewards: of each step, shape (length, …).
        values: of each moment and the one after the last step, shape (length + 1, …): of the best action, say.
        steps: at least 1.
        gamma: discount.
        ended: whether the episode ended with the last step, so that nothing follows.

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
