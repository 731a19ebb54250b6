"""PPO's clipped loss (Schulman et al., 2017, arXiv 1707.06347), in CleanRL's form."""

from typing import NamedTuple

import torch
from torch import Tensor

from node.rl.policy import ActorCritic
from node.rl.rollout import Rollout


class Minibatch(NamedTuple):
    """Some samples of a rollout.

    Attributes:
        part: these samples of the rollout.
        advantages: the advantages to learn from, e.g. normalised; shape (samples,).
        clip: largest distance of a ratio of probabilities from 1 that counts.
    """

    part: Rollout
    advantages: Tensor
    clip: float


def ppo_loss(
    model: ActorCritic, batch: Minibatch, vf_coef: float, ent_coef: float, *, clip_values: bool
) -> Tensor:
    """Return the mean loss over the samples of a minibatch, shape ().

    Args:
        model: as it is now.
        batch: what an earlier state of the model did.
        vf_coef: weight of half the critic's squared error.
        ent_coef: weight of the entropy of actions.
        clip_values: whether a value gains nothing by moving farther than `clip` from what it was.
    """
    part, gains, clip = batch
    found = model.distribution(part.seen)
    ratio = (found.log_prob(part.actions) - part.log_probs).exp()
    policy = -torch.min(gains * ratio, gains * ratio.clamp(1 - clip, 1 + clip)).mean()
    values, before = model.value(part.seen), part.values
    errors = (values - part.returns) ** 2
    if clip_values:
        near = before + (values - before).clamp(-clip, clip)
        errors = torch.max(errors, (near - part.returns) ** 2)
    return policy + vf_coef * 0.5 * errors.mean() - ent_coef * found.entropy().mean()
