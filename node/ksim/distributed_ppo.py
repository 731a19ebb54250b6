"""`DistributedRLConfig` and `DistributedPPOTask`, as in the guide to Ksim's distributed training.

Differences: a device is a rank, which may be on another node; environments are gymnasium's; and a batch takes the
same number of steps of every environment, while Ksim's takes all steps of some.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.base.options import OptionError, Value, check_bounds
from node.dist.rank_env import RankEnv, read_rank_env
from node.train import train
from node.training.config import TrainConfig, parse_config

if TYPE_CHECKING:
    from torch import nn

LOG = logging.getLogger(__name__)
COUNTS = (
    *("num_envs", "batch_size", "num_batches", "rollout_length", "num_passes", "total_timesteps"),
    "grad_sync_period",
)


@dataclass(frozen=True)
class DistributedRLConfig:
    """The settings of a training.

    Attributes:
        env: an environment of node/rl/presets.py, which also has the hyperparameters that are not named here.
        num_envs: environments of all ranks together.
        batch_size: number of environments whose steps in one rollout are as many samples as a batch has.
        num_batches: batches per rollout; batch_size times it is num_envs. None: as many as that makes.
        rollout_length: steps of each environment in a rollout.
        num_passes: passes over a rollout.
        total_timesteps: steps of all environments together.
        grad_sync_period: 1: average all gradients in each update (strategy ddp). More: ranks update apart, and
            average parameters every so many updates (fedavg).
        pmap_axis_name: the guide's name of JAX's axis of devices. It has no effect: torchrun's ranks are the devices.
        learning_rate: initial learning rate; None: the environment's.
        seed: seed of parameters and environments.
    """

    env: str = "CartPole-v1"
    num_envs: int = 12
    batch_size: int = 12
    num_batches: int | None = None
    rollout_length: int = 32
    num_passes: int = 20
    total_timesteps: int = 100_000
    grad_sync_period: int = 1
    pmap_axis_name: str = "device"
    learning_rate: float | None = None
    seed: int = 1

    @property
    def batches(self) -> int:
        """Batches per rollout."""
        return self.num_envs // self.batch_size if self.num_batches is None else self.num_batches

    def check(self, ranks: int) -> None:
        """Raise OptionError, a ValueError, in the guide's words, if this many ranks cannot train this way."""
        self._check_counts()
        if self.num_envs % ranks:
            raise OptionError(
                f"Number of environments ({self.num_envs}) must be divisible by number of devices ({ranks})"
            )
        if self.batch_size * self.batches != self.num_envs:
            raise OptionError(
                f"Batch size ({self.batch_size}) times number of batches ({self.batches}) must equal number of"
                f" environments ({self.num_envs})"
            )
        if self.rollout_length % self.batches:
            raise OptionError(
                f"Rollout length ({self.rollout_length}) must be divisible by number of batches ({self.batches})"
            )

    def _check_counts(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None:
                check_bounds(name, value, {"at least": 1})

    def flags(self) -> list[str]:
        """Return the same settings as flags of `python -m node.train`."""
        options: Mapping[str, Value] = {
            "env": self.env,
            "num_envs": self.num_envs,
            "num_steps": self.rollout_length,
            "num_minibatches": self.batches,
            "update_epochs": self.num_passes,
            "total_timesteps": self.total_timesteps,
        }
        words = ["--task", "ppo", "--seed", str(self.seed), *self._strategy()]
        if self.learning_rate is not None:
            words += ["--lr", str(self.learning_rate)]
        return words + [
            w for name, value in options.items() for w in ("--task-set", f"{name}={value}")
        ]

    def _strategy(self) -> list[str]:
        if self.grad_sync_period == 1:
            return ["--strategy", "ddp", "--task-set", "sync=all"]
        return ["--strategy", "fedavg", "--set", f"H={self.grad_sync_period}"]


class DistributedPPOTask:
    """PPO on a group of ranks that includes this process.

    Args:
        config: how to train.

    Raises:
        OptionError: these ranks cannot train so; raised before anything starts.
    """

    def __init__(self, config: DistributedRLConfig) -> None:
        self.config = config
        self._ranks: RankEnv = read_rank_env(os.environ)
        config.check(self._ranks.world_size)
        self._train_config: TrainConfig = parse_config(config.flags())

    def verify_distributed_setup(self) -> None:
        """Print how environments are dealt out; that ranks have equal parameters is checked when they connect."""
        share = self.config.num_envs // self._ranks.world_size
        if self._ranks.rank == 0:
            print(f"Total environments: {self.config.num_envs}", flush=True)
        first = self._ranks.rank * share
        print(f"Device {self._ranks.rank}: environments {first}-{first + share - 1}", flush=True)

    def run_distributed_training(self) -> "nn.Module":
        """Train; return the model, the same on every rank. node.train leaves metrics and model.pt."""
        if self._ranks.world_size == 1:
            LOG.warning(
                "Only 1 device detected. Distributed training will fall back to single-device mode."
            )
        os.environ["OMP_NUM_THREADS"] = str(
            self._train_config.threads
        )  # as node.train's main does, before torch
        return train(self._train_config)
