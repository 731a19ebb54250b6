"""The optimiser of every rank, and how its learning rate goes.

Strategies step it as they like; what is asked for here holds under all of them.
"""

import math
from typing import TYPE_CHECKING, Any

from node.config import TrainConfig

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def make_optimizer(config: TrainConfig, model: "nn.Module") -> "Optimizer":
    """Over all parameters of the model; clips gradients just before each of its steps, if asked.

    So what is clipped is what the optimiser steps with: under ddp the mean of all ranks.
    """
    import torch

    parameters = list(model.parameters())
    optimizer: Optimizer
    if config.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            parameters, config.lr, config.momentum, weight_decay=config.weight_decay
        )
    else:
        optimizer = torch.optim.AdamW(parameters, config.lr, weight_decay=config.weight_decay)
    if config.clip_norm:

        def clip(optimizer: "Optimizer", args: Any, kwargs: Any) -> None:  # noqa: ANN401
            torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)

        optimizer.register_step_pre_hook(clip)
    return optimizer


def set_learning_rate(optimizer: "Optimizer", config: TrainConfig, step: int) -> None:
    """What the schedule says for a step, 1 for the first."""
    for group in optimizer.param_groups:
        group["lr"] = config.lr * rate(config, step)


def rate(config: TrainConfig, step: int) -> float:
    """The share of the learning rate that a step, 1 for the first, has.

    It grows evenly over the warm-up's steps, is 1 after the last of them, and then stays there or
    goes down along half a cosine wave, to `final_lr` at the last step (Loshchilov and Hutter, 2017,
    arXiv 1608.03983, without restarts).
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    first = max(1, config.warmup_steps)
    done = (step - first) / max(1, config.steps - first)
    return config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * done)) / 2
