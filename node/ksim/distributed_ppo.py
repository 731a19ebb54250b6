"""`DistributedPPOTask`, as in the guide to Ksim's distributed training; derive a task of your own from it.

Differences: a device is a rank, which may be on another node; environments are gymnasium's; and a batch takes the
same number of steps of every environment, while Ksim's takes all steps of some.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from node.base.options import OptionError
from node.dist.rank_env import RankEnv, read_rank_env
from node.ksim.config import DistributedRLConfig
from node.ksim.rewards import Reward
from node.tasks.ppo import Ppo
from node.train import train
from node.training.config import TrainConfig, parse_config
from protocol.rank import EXIT_USAGE

if TYPE_CHECKING:
    import gymnasium
    import torch
    from torch import nn

    from node.rl.policy import ActorCritic

LOG = logging.getLogger(__name__)
Config = TypeVar("Config", bound=DistributedRLConfig)
# Hooks of the guide for which there is no place here: JAX passes an environment's state from function to function.
REFUSED: Mapping[str, str] = {
    "_rollout": "rollouts are collected by node/rl/rollout.py: change the environment or its rewards (make_environment,"
    " get_rewards)",
    "_get_initial_env_state": "an environment keeps its own state: return a new one from make_environment",
}


class DistributedPPOTask(Generic[Config]):
    """PPO on a group of ranks that includes this process, each with its share of the environments.

    A derived task may define `make_environment`, `get_rewards` and `_get_initial_model`.

    Args:
        config: how to train.

    Raises:
        OptionError: these ranks cannot train so; raised before anything starts.
        TypeError: a derived task defines a hook of the guide that would never be called.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, instead in REFUSED.items():
            if hasattr(cls, name):
                raise TypeError(f"{cls.__name__}.{name} would never be called: {instead}")

    def __init__(self, config: Config) -> None:
        self.config = config
        self._ranks: RankEnv = read_rank_env(os.environ)
        ppo = _ppo_of(self)
        config.check(self._ranks.world_size, ppo)
        flags = config.flags(ppo)
        LOG.debug("python -m node.train %s", " ".join(flags))
        self._num_envs = config.sizes(ppo).envs
        self._train_config: TrainConfig = parse_config(flags, learnt=ppo)
        options: dict[str, Any] = self._train_config.task_options
        self._ppo = ppo(**options)

    def shard_environments(self) -> range:
        """Return the numbers of this rank's environments."""
        share = self._num_envs // self._ranks.world_size
        return range(self._ranks.rank * share, (self._ranks.rank + 1) * share)

    def verify_distributed_setup(self) -> None:
        """Print how environments are dealt out; that ranks have equal parameters is checked when they connect."""
        if self._ranks.rank == 0:
            print(f"Total environments: {self._num_envs}", flush=True)
        own = self.shard_environments()
        print(f"Device {self._ranks.rank}: environments {own[0]}-{own[-1]}", flush=True)

    def make_environment(self) -> "gymnasium.Env":
        """Return a new environment (node/tasks/gymnasium_task.py says what it must be like): that of config.env."""
        import gymnasium

        return gymnasium.make(self.config.env)

    def get_rewards(self, physics_model: "gymnasium.Env") -> Sequence[Reward]:
        """Return rewards whose scaled sum replaces the environment's own; none: that stays.

        Args:
            physics_model: the environment; each gets rewards of its own.
        """
        return ()

    def _get_initial_model(self, rng: "torch.Generator") -> "ActorCritic":
        """Return the model to begin with: an `ActorCritic`, whose `actor` and `critic` may be replaced.

        Args:
            rng: a generator with the run's seed, the same on every rank.
        """
        return Ppo.make_model(self._ppo)

    def run_distributed_training(self) -> "nn.Module":
        """Train; return the model, the same on every rank.

        Metrics, checkpoints and model.pt go to the run folder ($GRADWIRE_RUN_DIR), which the launcher makes; a script
        that runs alone leaves nothing unless that is set.
        """
        if self._ranks.world_size == 1:
            LOG.warning(
                "Only 1 device detected. Distributed training will fall back to single-device mode."
            )
        # as node.train's main does, before torch
        os.environ["OMP_NUM_THREADS"] = str(self._train_config.threads)
        return train(self._train_config, self._ppo)

    @classmethod
    def launch(cls, config: Config, words: Sequence[str] | None = None) -> "nn.Module":
        """Train with what the command line sets, KEY=VALUE; exits with 2 and one line if that is not possible.

        Args:
            config: the settings that the command line does not name.
            words: the command line; None: the program's.
        """
        try:
            task = cls(config.with_words(sys.argv[1:] if words is None else words))
            task.verify_distributed_setup()
            return task.run_distributed_training()
        except OptionError as error:
            print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
            raise SystemExit(EXIT_USAGE) from None


class _HookedPpo(Ppo):
    """PPO with the environment, the rewards and the model of a `DistributedPPOTask`, its owner."""

    owner: ClassVar[DistributedPPOTask[Any]]

    @classmethod
    def has_own_environment(cls) -> bool:
        return type(cls.owner).make_environment is not DistributedPPOTask.make_environment

    def make_environment(self) -> "gymnasium.Env":
        env = self.owner.make_environment()
        rewards = self.owner.get_rewards(env)
        if rewards is None:
            raise OptionError("get_rewards returns None: it must return a list, which may be empty")
        if not rewards:
            return env
        from node.ksim.rewarded import Rewarded

        return Rewarded(env, rewards)

    def fingerprint(self) -> bytes:
        return super().fingerprint() + repr(sorted(self.own_settings().items())).encode()

    def own_settings(self) -> Mapping[str, str]:
        own = self.owner.config.own_settings()
        return {name: _without_address(repr(value)) for name, value in own.items()}

    def make_model(self) -> "ActorCritic":
        import torch

        from node.rl.policy import ActorCritic

        rng = torch.Generator().manual_seed(self.owner.config.seed)
        model = self.owner._get_initial_model(rng)
        if not isinstance(model, ActorCritic):
            raise OptionError(
                f"_get_initial_model: {type(model).__name__} is no node.rl.policy.ActorCritic"
            )
        return model


def _without_address(text: str) -> str:
    """Return the `repr` of an object without the place in memory, which is another one in each process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _ppo_of(owner: DistributedPPOTask[Any]) -> type[Ppo]:
    """Return a class of its own, named as the owner's, because options have their defaults before there is a task."""
    return type(type(owner).__name__, (_HookedPpo,), {"owner": owner})
