"""Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347), with its environments dealt out to the ranks.

A step of the run is one minibatch: every rank takes it from its own environments' experience, and the strategy
decides what the ranks then send each other. So `ddp` is one all-reduce per minibatch and, with `sync=all`, equals one
process with all environments; under `fedavg`, `diloco` or `gossip`, ranks collect and learn apart for a while. Before
the first minibatch of a rollout, each rank runs its environments with its own parameters.

Options have the names and meanings of CleanRL's ppo.py, with one difference: every minibatch has an equal share of
each environment's steps (node/rl/minibatches.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from node.base.options import OptionError, Value, option
from node.rl.presets import NO_PRESET, PRESETS, Preset, preset_of
from node.tasks.base import RunPart, Task
from node.tasks.gymnasium_task import GymnasiumTask
from node.tasks.saved import Saved

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from node.dist.comm import Comm
    from node.rl.loss import Minibatch
    from node.rl.policy import ActorCritic

DEFAULT_ENV = "CartPole-v1"
SMALL = 1e-8


@dataclass
class Ppo(GymnasiumTask, Task):
    """PPO on gymnasium environments, the same number on every rank; a step is a minibatch."""

    env: str = option(
        DEFAULT_ENV, "environment; it has defaults for other options", choices=tuple(PRESETS)
    )
    total_timesteps: int = option(100_000, "total steps of all environments", at_least=1)
    num_envs: int = option(12, "total environments of all ranks", at_least=1)
    num_steps: int = option(128, "steps of each environment in a rollout", at_least=1)
    update_epochs: int = option(4, "passes over a rollout", at_least=1)
    num_minibatches: int = option(4, "minibatches per pass, each a step of the run", at_least=1)
    gamma: float = option(0.99, "discount factor", at_least=0.0, at_most=1.0)
    gae_lambda: float = option(
        0.95, "lambda of generalised advantage estimation", at_least=0.0, at_most=1.0
    )
    clip_coef: float = option(0.2, "clip range of probability ratios", above=0.0)
    anneal_clip: bool = option(False, "decrease clip_coef linearly to 0")
    clip_vloss: bool = option(False, "clip values too")
    ent_coef: float = option(0.0, "weight of the entropy", at_least=0.0)
    vf_coef: float = option(0.5, "weight of the critic's error", at_least=0.0)
    norm_adv: bool = option(True, "normalise each minibatch's advantages")
    normalise: bool = option(False, "normalise observations and rewards by running statistics")
    gsde: bool = option(False, "continuous actions: noise that depends on the state, and persists")
    sde_sample_freq: int = option(4, "steps for which this noise persists", at_least=1)
    sync: str = option(
        "needed",
        "statistics summed over ranks in one small all-reduce per rollout: those of normalise; of advantages too; none",
        choices=("needed", "all", "none"),
    )
    hidden: int = option(64, "units of each hidden layer", at_least=1)
    activation: str = option("tanh", "activation of hidden layers", choices=("tanh", "relu"))
    log_std: float = option(
        0.0,
        "continuous actions: initial logarithm of the noise's standard deviation",
        at_least=-20.0,
        at_most=2.0,
    )
    eval_episodes: int = option(100, "episodes per test, with the likeliest actions", at_least=1)

    settled: ClassVar[Mapping[str, str]] = {
        "batch_size": "num_envs, num_steps and num_minibatches",
        "accumulate": "num_minibatches",
        "shard": "num_envs",
        "autocast": "the rollouts, which are made without",
    }
    own_samples = True
    regroups = True

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """Return the options of the environment's preset.

        Raises:
            OptionError: there is no environment of that name, or the task makes its own.
        """
        preset = cls._preset(settings.get("env", DEFAULT_ENV))
        return {**super().option_defaults(settings), **preset.options}

    @classmethod
    def _preset(cls, env: str) -> Preset:
        return NO_PRESET if cls.has_own_environment() else preset_of(env)

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Return the steps of the whole run, and the other flags of the environment's preset.

        Raises:
            OptionError: this many ranks cannot share the environments, a rollout cannot be cut into the minibatches, or
                options of noise are set for discrete actions.
        """
        if self.num_envs % world_size:
            raise OptionError(
                f"num_envs: {self.num_envs} environments cannot be shared evenly by {world_size} ranks"
            )
        alike = self.num_envs if self.sync == "all" else self.num_envs // world_size
        if self.norm_adv and alike * self.num_steps // self.num_minibatches < 2:
            raise OptionError(
                f"num_minibatches={self.num_minibatches} leaves a rank one sample, which norm_adv makes nothing of"
            )
        if self.num_steps % self.num_minibatches:
            raise OptionError(
                f"num_minibatches={self.num_minibatches} must divide num_steps={self.num_steps}: each takes as many"
                " steps of every environment"
            )
        if not self.has_own_environment():
            self._check_noise(acts_in_numbers=preset_of(self.env).acts_in_numbers)
        return {
            "weight_decay": 0.0,
            "clip_norm": 0.5,
            **self._preset(self.env).flags,
            "steps": self.rollouts * self.minibatches_a_rollout,
            "batch_size": self.num_envs // world_size * self.num_steps // self.num_minibatches,
        }

    def _check_noise(self, *, acts_in_numbers: bool) -> None:
        """Refuse options of noise if actions are discrete."""
        said = [name for name in ("gsde", "log_std") if getattr(self, name)]
        if said and not acts_in_numbers:
            raise OptionError(f"{said[0]}: the actions of {self.environment_name} are no numbers")

    @property
    def rollouts(self) -> int:
        """Number of rollouts that make up total_timesteps; the last one may exceed it."""
        return -(-self.total_timesteps // (self.num_envs * self.num_steps))

    @property
    def minibatches_a_rollout(self) -> int:
        """Steps of the run that use one rollout."""
        return self.update_epochs * self.num_minibatches

    def load(self, data_dir: Path | None) -> None:
        """Find out the sizes of the environment's observations and actions."""
        from node.rl.environments import Environments

        one = Environments(self.make_environment, [0], 0)
        self._shape = one.features, one.actions, one.action_size
        self._check_noise(acts_in_numbers=not one.actions)
        one.close()

    def begin(self, part: RunPart) -> None:
        """Make this rank's environments."""
        from node.rl.environments import Environments
        from node.rl.rollout import Collector

        share = self.num_envs // part.world_size
        self._part = part
        self._numbers = range(part.rank * share, (part.rank + 1) * share)
        self.train_size = self.num_steps * share
        environments = Environments(self.make_environment, self._numbers, part.seed)
        self._collector = Collector(environments, self.gamma, self.gae_lambda)

    def fingerprint(self) -> bytes:
        """Return the environment, the version of gymnasium, and the sizes of observations and actions."""
        import gymnasium

        return f"{self.environment_name} {gymnasium.__version__} {self._shape}".encode()

    def make_model(self) -> "ActorCritic":
        """Return an `ActorCritic`."""
        from node.rl.policy import ActorCritic

        return ActorCritic(
            *self._shape,
            self.hidden,
            normalise=self.normalise,
            gsde=self.gsde,
            activation=self.activation,
            log_std=self.log_std,
        )

    def prepare(self, step: int, model: "ActorCritic", comm: "Comm") -> Mapping[str, Value]:
        """Collect a rollout if one is due; return its figures."""
        from node.rl.moments import mean_and_std, sums_by_minibatch

        rollout, self._minibatch = divmod(step - 1, self.minibatches_a_rollout)
        if self._minibatch:
            return {}
        self._clip = self.clip_coef
        if self.anneal_clip:
            self._clip *= 1 - (step - 1) / self._part.steps
        self._order = self._draw_minibatches(rollout, self._numbers)
        self._rollout, seen = self._collector.collect(model, self._draw_noise(rollout, model))
        gains = self._rollout.advantages[self._order].double()
        sums = self._add_up(comm, seen.to(gains.device), sums_by_minibatch(gains))
        if model.normaliser:
            model.normaliser.add(sums[: len(seen)])
        count = gains.shape[1] * (comm.world_size if self.sync == "all" else 1)
        self._advantages = mean_and_std(sums[len(seen) :].view(2, -1), count)
        return self._figures(rollout)

    def _draw_minibatches(self, rollout: int, numbers: Sequence[int]) -> "Tensor":
        """Return the samples of each minibatch in these environments, int64, (minibatches_a_rollout, samples)."""
        import torch

        from node.rl.minibatches import minibatches

        sizes = self.num_steps, self.num_envs, self.num_minibatches
        epochs = [
            minibatches(self._part.seed, rollout, epoch, *sizes, numbers)
            for epoch in range(self.update_epochs)
        ]
        return torch.cat(epochs)

    def _draw_noise(self, rollout: int, model: "ActorCritic") -> "Tensor":
        from node.rl.minibatches import action_noise

        lasts = self.sde_sample_freq if self.gsde else 1
        noise = action_noise(
            self._part.seed,
            rollout,
            (-(-self.num_steps // lasts), self.num_envs, model.noise_size),
            uniform=bool(self._shape[1]),
            numbers=self._numbers,
        )
        noise = noise.repeat_interleave(lasts, 0)[: self.num_steps]
        return noise.to(next(model.parameters()).device)

    def _add_up(self, comm: "Comm", seen: "Tensor", gains: "Tensor") -> "Tensor":
        """Concatenate both, after adding up over all ranks those that `sync` names."""
        import torch

        shared = {
            "none": (),
            "needed": (seen,) if self.normalise else (),
            "all": (seen, gains) if self.normalise else (gains,),
        }[self.sync]
        if shared and comm.world_size > 1:
            comm.average(shared, purpose="control")
            for tensor in shared:
                tensor *= comm.world_size
        return torch.cat([seen, gains])

    def _figures(self, rollout: int) -> Mapping[str, Value]:
        """Return the figures of a rollout, of this rank alone."""
        ended = self._collector.ended
        figures: dict[str, Value] = {
            "rollout": rollout + 1,
            "env_steps": (rollout + 1) * self.num_steps * len(self._numbers),
            "episodes": len(ended),
        }
        if ended:
            figures["episode_return"] = sum(gained for gained, _ in ended) / len(ended)
            figures["episode_length"] = sum(length for _, length in ended) / len(ended)
        return figures

    def samples(self, step: int) -> "Tensor":
        """Return the samples of this step's minibatch."""
        return self._order[self._minibatch]

    def batch(self, samples: "Tensor", device: "torch.device") -> "Minibatch":
        """Return these samples and the advantages to learn from, normalised if norm_adv says so."""
        from node.rl.loss import Minibatch

        part = self._rollout.take(samples.to(device))
        gains = part.advantages
        if self.norm_adv:
            mean, std = self._advantages[:, self._minibatch].to(gains.dtype)
            gains = (gains - mean) / (std + SMALL)
        return Minibatch(part, gains, self._clip)

    def loss(self, model: "ActorCritic", batch: "Minibatch") -> "Tensor":
        """Return PPO's loss."""
        from node.rl.loss import ppo_loss

        return ppo_loss(model, batch, self.vf_coef, self.ent_coef, clip_values=self.clip_vloss)

    def evaluate(self, model: "ActorCritic", device: "torch.device") -> dict[str, float]:
        """Return `test_return` and `test_length`: means over episodes of environments that training never sees."""
        from node.rl.play import evaluate

        return evaluate(model, self.make_environment, self.eval_episodes, self._part.seed, device)

    def statistics(self, model: "ActorCritic") -> "Sequence[Tensor]":
        """Return the buffers of the normaliser, if there is one."""
        return list(model.normaliser.buffers()) if model.normaliser else []

    def state(self) -> dict[str, object]:
        """Return the state of the environments, and the current rollout."""
        return {
            "collector": self._collector.state(),
            "rollout": vars(self._rollout),
            "order": self._order,
            "advantages": self._advantages,
            "clip": self._clip,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        from node.rl.rollout import Rollout

        self._collector.load_state(state["collector"])
        self._rollout = Rollout(**state["rollout"])
        self._order = state["order"].cpu()
        self._advantages = state["advantages"]
        self._clip = state["clip"]

    def regroup(self, states: Sequence[Saved], together: Saved) -> dict[str, object]:
        """Return this rank's share of all environments and of their rollout."""
        from node.rl.regroup import deal_environments, deal_rollout

        tasks = [state["task"] for state in states]
        if self.normalise and self.sync == "none":  # each rank counted only its own
            for name in ("normaliser.obs.count", "normaliser.returns.count"):
                together["model"][name] *= len(states) / self._part.world_size
        rollouts = [task["rollout"] for task in tasks]
        number = (together["step"] - 1) // self.minibatches_a_rollout
        return {
            "collector": deal_environments([task["collector"] for task in tasks], self._numbers),
            "rollout": deal_rollout(rollouts, self.num_steps, self._numbers),
            "order": self._draw_minibatches(number, self._numbers),
            "advantages": self._advantages_of(rollouts, number),
            "clip": tasks[0]["clip"],
        }

    def _advantages_of(self, rollouts: "Sequence[dict[str, Tensor]]", number: int) -> "Tensor":
        """Return means and standard deviations of advantages by minibatch.

        Each is over the advantages that `sync` normalises together.
        """
        from node.rl.moments import mean_and_std, sums_by_minibatch
        from node.rl.regroup import deal_rollout

        alike = range(self.num_envs) if self.sync == "all" else self._numbers
        gains = deal_rollout(rollouts, self.num_steps, alike)["advantages"]
        gains = gains[self._draw_minibatches(number, alike)].double()
        return mean_and_std(sums_by_minibatch(gains).view(2, -1), gains.shape[1])
