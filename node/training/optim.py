"""The local optimiser, its learning-rate schedule, and gradient clipping.

Each strategy decides when to step the optimiser; the settings handled here hold under all strategies.
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
    """Return the optimiser over all parameters of the model."""
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
    """Count the optimiser's steps as computing from now on, also those that a strategy makes within its own time.

    Hooks that are registered later (clipping) count as computing, too.
    """
    running: list[str] = []  # the bucket that a step pauses
    optimizer.register_step_pre_hook(lambda *_: running.append(clock.switch("compute")))

    def go_on(*_: object) -> None:
        clock.switch(running.pop())

    optimizer.register_step_post_hook(go_on)


def start_clipping(longest: float, strategy: "Strategy") -> Callable[[], None]:
    """Shorten gradients that are longer than `longest`, from now on.

    The gradients that the optimiser steps with are clipped: under ddp, the mean of all ranks. If the optimiser steps
    with something other than a gradient (`Strategy.replaces_gradient`), the rank's own gradient is clipped before the
    strategy gets it.

    Args:
        longest: largest norm of all gradients together; 0: no limit.
        strategy: already set up.

    Returns:
        A function to call before each step of the strategy.
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
    """Set the learning rate of a step, from 1, as the schedule says."""
    for group in optimizer.param_groups:
        group["lr"] = config.lr * rate(config, step)


def rate(config: TrainConfig, step: int) -> float:
    """Return the share of the learning rate that applies in a step, from 1.

    It grows linearly over the warm-up's steps, is 1 after the last of them, and then stays there or falls to
    `final_lr` at the last step: linearly, or along half a cosine wave (Loshchilov and Hutter, 2017, arXiv 1608.03983,
    without restarts).
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    if config.lr_schedule == "constant":
        return 1.0
    first = max(1, config.warmup_steps)
    done = (step - first) / max(1, config.steps - first)
    left = 1 - done if config.lr_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.final_lr + (1 - config.final_lr) * left
