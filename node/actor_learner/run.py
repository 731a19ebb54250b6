"""Runs one rank of a training by learner and actors."""

from typing import TYPE_CHECKING

import torch

from node.accounting.metrics import Clock
from node.actor_learner.act import act
from node.actor_learner.learn import learn
from node.tasks import task_class
from node.tasks.actor_learner import ActorLearnerTask
from node.tasks.draws import seed_draws
from node.training.config import TrainConfig

if TYPE_CHECKING:
    from torch import nn


def run(config: TrainConfig, started: float) -> "nn.Module":
    """Learn or act, by rank, until the learner has made its updates.

    Args:
        config: configuration of the training; `steps` are updates of the learner.
        started: when this process started, by time.perf_counter.

    Returns:
        The model: on rank 0 the trained one, on other ranks the latest version that arrived.

    Raises:
        RuntimeError: the other side was missing for longer than ranks may be silent.
    """
    clock = Clock(started)
    torch.set_num_threads(config.threads)
    seed_draws(config.seed)
    task = task_class(config.task)(**config.task_options)
    assert isinstance(task, ActorLearnerTask)
    model = task.make_model()
    if config.ranks.rank == 0:
        return learn(config, task, model, clock)
    return act(config, task, model, clock)
