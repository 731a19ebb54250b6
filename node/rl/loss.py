"""PPO's clipped loss (Schulman et al., 2017, arXiv 1707.06347), in CleanRL's form."""

from typing import NamedTuple

import torch
from torch import Tensor

from node.rl.policy import ActorCritic
from node.rl.rollout import Rollout


class Minibatch(NamedTuple):
    """Some samples of a rollout.

    Attributes:
        part: of the rollout.
        advantages: of these samples as they are learnt: normalised, say; shape (samples,).
        clip: how far a ratio of probabilities counts from 1.
    """

    part: Rollout
    advantages: Tensor
    clip: float


def ppo_loss(
    model: ActorCritic, batch: Minibatch, vf_coef: float, ent_coef: float, *, clip_values: bool
) -> Tensor:
    """The mean over the samples of a minibatch, shape ().

    Args:
        model: as it is now.
        batch: what the model of before has done.
        vf_coef: what half of the critic's squared error counts for.
        ent_coef: what the entropy of actions counts for.
        clip_values: whether a value may gain by going farther than `clip` from what it was.
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
