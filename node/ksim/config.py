"""The settings of a distributed training, under the names of Ksim's guide. Nothing here imports torch."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from node.base.options import KINDS, OptionError, Value, check_bounds, parse_value, unknown
from node.tasks.ppo import DEFAULT_ENV, Ppo

COUNTS = (
    *("num_envs", "batch_size", "num_batches", "rollout_length", "num_passes", "total_timesteps"),
    "grad_sync_period",
)


class Sizes(NamedTuple):
    """What a rollout consists of: environments of all ranks, steps of each, and batches."""

    envs: int
    steps: int
    batches: int


@dataclass
class DistributedRLConfig:
    """The settings of a training. Derive a dataclass from it for settings of your own task.

    What is None has the environment's own value (node/rl/presets.py).

    Attributes:
        env: an environment that has a preset; a task that makes its own environment leaves this as it is.
        num_envs: environments of all ranks together.
        batch_size: number of environments whose steps in one rollout are as many samples as a batch has.
        num_batches: batches per rollout; batch_size times it is num_envs. If batch_size is given, it follows from that.
        rollout_length: steps of each environment in a rollout, a multiple of the number of batches.
        num_passes: passes over a rollout.
        total_timesteps: steps of all environments together.
        grad_sync_period: 1: average all gradients in each update (strategy ddp). More: ranks update apart, and
            average parameters every so many updates (fedavg).
        strategy: another strategy, by its name or of your own (./mine.py:Mine), with H=grad_sync_period if that is
            more than 1.
        pmap_axis_name: the guide's name of JAX's axis of devices. It has no effect: torchrun's ranks are the devices.
        learning_rate: initial learning rate.
        checkpoint_every: updates between checkpoints; they go to the run folder.
        resume: a run folder to continue from.
        seed: seed of parameters and environments.
    """

    env: str = DEFAULT_ENV
    num_envs: int | None = None
    batch_size: int | None = None
    num_batches: int | None = None
    rollout_length: int | None = None
    num_passes: int | None = None
    total_timesteps: int | None = None
    grad_sync_period: int = 1
    strategy: str | None = None
    pmap_axis_name: str = "device"
    learning_rate: float | None = None
    checkpoint_every: int | None = None
    resume: str | None = None
    seed: int = 1

    def with_words(self, words: Sequence[str]) -> Self:
        """Return a copy with settings from a command line, each KEY=VALUE.

        Raises:
            OptionError: a word has another form, names no setting, or its value has the wrong type.
        """
        kinds = get_type_hints(type(self))
        values = {}
        for text in words:
            key, equals, word = text.partition("=")
            if not equals:
                raise OptionError(f"{text}: write KEY=VALUE; there is {', '.join(sorted(kinds))}")
            if key not in kinds:
                raise unknown("setting", key, kinds)
            values[key] = parse_value(key, word, _kind(key, kinds[key]))
        return dataclasses.replace(self, **values)

    def own_settings(self) -> dict[str, object]:
        """Return the settings of a derived dataclass that are none of PPO's; they decide rewards, say."""
        base = {field.name for field in dataclasses.fields(DistributedRLConfig)}
        names = [f.name for f in dataclasses.fields(self) if f.name not in base]
        return {name: getattr(self, name) for name in names}

    def sizes(self, task: type[Ppo]) -> Sizes:
        """Return the sizes of a rollout; what is not set is `task`'s."""
        defaults = self._defaults(task)
        envs = self.num_envs or defaults["num_envs"]
        batches = self.num_batches or defaults["num_minibatches"]
        if self.batch_size and self.num_batches is None:
            batches = envs // self.batch_size
        whole = -(-defaults["num_steps"] // max(1, batches)) * batches
        return Sizes(envs, self.rollout_length or whole, batches)

    def _defaults(self, task: type[Ppo]) -> dict[str, int]:
        names = ("num_envs", "num_steps", "num_minibatches")
        preset: Mapping[str, Any] = task.option_defaults(self._env(task))
        return {name: preset.get(name, getattr(task, name)) for name in names}

    def _env(self, task: type[Ppo]) -> dict[str, str]:
        """Return the environment's name as an option, if the task does not make its own."""
        own = task.has_own_environment() and self.env == DEFAULT_ENV
        return {} if own else {"env": self.env}

    def check(self, ranks: int, task: type[Ppo]) -> None:
        """Raise OptionError, a ValueError, in the guide's words, if this many ranks cannot train this way."""
        for name in COUNTS:
            if (value := getattr(self, name)) is not None:
                check_bounds(name, value, {"at least": 1})
        envs, steps, batches = self.sizes(task)
        if envs % ranks:
            raise OptionError(
                f"Number of environments ({envs}) must be divisible by number of devices ({ranks})"
            )
        self._check_batches(envs, batches)
        if steps % batches:
            raise OptionError(
                f"Rollout length ({steps}) must be divisible by number of batches ({batches})"
            )

    def _check_batches(self, envs: int, batches: int) -> None:
        if self.batch_size is None and self.num_batches is None:
            return
        size = self.batch_size or envs // batches
        if size * batches != envs:
            raise OptionError(
                f"Batch size ({size}) times number of batches ({batches}) must equal number of environments ({envs})"
            )

    def flags(self, task: type[Ppo]) -> list[str]:
        """Return the same settings as flags of `python -m node.train`."""
        sizes = self.sizes(task)
        options: dict[str, Value | None] = {
            **self._env(task),
            "num_envs": sizes.envs,
            "num_steps": sizes.steps,
            "num_minibatches": sizes.batches,
            "update_epochs": self.num_passes,
            "total_timesteps": self.total_timesteps,
        }
        flags = {
            "--lr": self.learning_rate,
            "--checkpoint-every": self.checkpoint_every,
            "--resume": self.resume,
        }
        words = ["--task", "ppo", "--seed", str(self.seed), *self._strategy()]
        words += [
            w for flag, value in flags.items() if value is not None for w in (flag, str(value))
        ]
        set_to = [f"{name}={value}" for name, value in options.items() if value is not None]
        return words + [w for text in set_to for w in ("--task-set", text)]

    def _strategy(self) -> list[str]:
        period = [] if self.grad_sync_period == 1 else ["--set", f"H={self.grad_sync_period}"]
        if self.strategy is not None:
            return ["--strategy", self.strategy, *period]
        if period:
            return ["--strategy", "fedavg", *period]
        return ["--strategy", "ddp", "--task-set", "sync=all"]


def _kind(key: str, hint: Any) -> type[Any]:  # noqa: ANN401
    """Return the type of a setting's values; of `int | None`, that is int."""
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    kind = next((kind for kind in kinds if kind in KINDS), None)
    if kind is None:
        raise OptionError(f"{key}: a {hint} cannot be given by KEY=VALUE")
    return kind  # type: ignore[no-any-return]
