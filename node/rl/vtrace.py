"""V-trace: values and advantages from an older policy's actions (Espeholt et al., 2018, arXiv 1802.01561)."""

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """The result for each step; both have shape (steps, n).

    Attributes:
        targets: the critic's targets.
        advantages: advantages for the policy to learn from.
    """

    targets: Tensor
    advantages: Tensor


def vtrace(
    log_ratios: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    values: Tensor,
    last_values: Tensor,
    *,
    rho_bar: float,
    c_bar: float,
) -> VTrace:
    """Compute equation 1 of the paper by the recurrence of its remark 1, and the advantages of its section 4.2.

    Args:
        log_ratios: logarithm of the ratio of the actions' probabilities, learning policy to acting policy, shape
            (steps, n).
        rewards: (steps, n).
        discounts: gamma, or 0 if the episode ended with the step, (steps, n).
        values: the critic's, of the observations acted on, (steps, n).
        last_values: the critic's, of the observations after the last step, (n,).
        rho_bar: largest ratio that counts; decides to which policy the values belong.
        c_bar: the same for how far back a step's error reaches.
    """
    ratios = log_ratios.exp()
    rho, c = ratios.clamp(max=rho_bar), ratios.clamp(max=c_bar)
    following = torch.cat([values[1:], last_values.unsqueeze(0)])
    errors = rho * (rewards + discounts * following - values)
    corrections = torch.empty_like(errors)
    later = torch.zeros_like(last_values)
    for step in range(len(errors) - 1, -1, -1):
        later = errors[step] + discounts[step] * c[step] * later
        corrections[step] = later
    targets = values + corrections
    after = torch.cat([targets[1:], last_values.unsqueeze(0)])
    return VTrace(targets, rho * (rewards + discounts * after - values))
