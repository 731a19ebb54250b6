"""The local optimiser, its learning-rate schedule, and gradient clipping.

Strategies step it as they like; what is asked for here holds under all of them.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from node.training.config import TrainConfig

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from node.accounting.metrics import Clock
    from node.strategies.base import Strategy


def make_optimizer(config: TrainConfig, model: "nn.Module") -> "Optimizer":
    """Over all parameters of the model."""
    import torch

    parameters = list(model.parameters())
    optimizer: Optimizer
    if config.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            parameters, config.lr, config.momentum, weight_decay=config.weight_decay
        )
    else:
        optimizer = torch.optim.AdamW(parameters, config.lr, weight_decay=config.weight_decay)
    return optimizer


def time_steps(optimizer: "Optimizer", clock: "Clock") -> None:
    """From now on the optimiser's steps count as computing, whoever makes them: strategies do, in seconds of their own.

    Hooks that come later (clipping) are within it.
    """
    running: list[str] = []  # the bucket that is paused meanwhile
    optimizer.register_step_pre_hook(lambda *_: running.append(clock.switch("compute")))

    def go_on(*_: object) -> None:
        clock.switch(running.pop())

    optimizer.register_step_post_hook(go_on)


def start_clipping(longest: float, strategy: "Strategy") -> Callable[[], None]:
    """From now on shorten gradients to a length, if they are longer.

    What is clipped is what the optimiser steps with: under ddp the mean of all ranks. Where that is no
    gradient (`Strategy.replaces_gradient`), it is the rank's own, before the strategy has it.

    Args:
        longest: the norm of all gradients together; 0 is any.
        strategy: after its setup.

    Returns:
        What is to be called before each step of the strategy.
    """
    from torch.nn.utils import clip_grad_norm_

    def clip(*_: object) -> None:
        clip_grad_norm_(strategy.model.parameters(), longest)

    if longest and strategy.replaces_gradient:
        return clip
    if longest:
        strategy.optimizer.register_step_pre_hook(clip)
    return lambda: None


def set_learning_rate(optimizer: "Optimizer", config: TrainConfig, step: int) -> None:
    """What the schedule says for a step, 1 for the first."""
    for group in optimizer.param_groups:
        group["lr"] = config.lr * rate(config, step)


def rate(config: TrainConfig, step: int) -> float:
    """The share of the learning rate that a step, 1 for the first, has.

    It grows evenly over the warm-up's steps, is 1 after the last of them, and then stays there or
    goes down to `final_lr` at the last step: evenly, or along half a cosine wave (Loshchilov and
    Hutter, 2017, arXiv 1608.03983, without restarts).
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    if config.lr_schedule == "constant":
        return 1.0
    first = max(1, config.warmup_steps)
    done = (step - first) / max(1, config.steps - first)
    left = 1 - done if config.lr_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.final_lr + (1 - config.final_lr) * left
