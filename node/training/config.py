"""The command line of `python -m node.train`, and the resolved configuration that it becomes.

Precedence: flag, then environment (torchrun's variables, GRADWIRE_*), then default. A user's mistakes are refused
here, before torch is imported and before any process group exists.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.base.options import (
    OptionError,
    Value,
    check_bounds,
    parse_environ,
    parse_settings,
    split_settings,
    unknown,
)
from node.dist.rank_env import PORTS, RankEnv, read_rank_env
from node.strategies import strategy_class
from node.strategies.base import Strategy
from node.tasks import task_class
from node.tasks.actor_learner import ActorLearnerTask
from node.tasks.base import AnyTask
from node.training.flags import (
    AUTOCASTS,
    DEFAULT_ALPHA,
    DEFAULT_FINAL_LR,
    DEFAULT_LR,
    DEFAULT_WEIGHT_DECAY,
    EVALS,
    SCHEDULES,
    SHARDS,
    make_parser,
)
from protocol.rank_variables import RUN_DIR, SILENCE_S, SLOWEST_MBYTE_S, TIMEOUT_S

# torch's own default for gloo; a launcher knows the links, and may set more.
DEFAULT_TIMEOUT_S = 1800.0
MOST_TIMEOUT_S = 366 * 24 * 3600.0  # no wait of torch overflows
# gloo takes 1.6 to 2.1 times as long as the bound of a ring (docs/LOG.md), longer on a busy machine.
MODEL_PATIENCE = 4.0
# Far above the largest that differs from an even split; random.gammavariate never ends with 1e308.
ALPHAS = {"above": 0, "at most": 1e9}
# torch takes seeds up to 2**64 - 1: ranks and epochs add to these.
SEEDS = {"at least": -(2**63), "at most": 2**63 - 1}


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run, under the flags' names.

    A launcher reads some of it by these names: protocol/training.py.
    """

    task: str
    task_options: dict[str, Value]
    data_dir: Path | None
    shard: str
    alpha: float
    strategy: str
    strategy_options: dict[str, Value]
    steps: int
    batch_size: int
    accumulate: int
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    warmup_steps: int
    lr_schedule: str
    final_lr: float
    clip_norm: float
    autocast: str
    seed: int
    threads: int
    eval_every: int
    eval: str
    checkpoint_every: int
    resume: Path | None
    run_dir: Path | None
    timeout_s: float
    silence_s: float
    slowest_mbyte_s: float | None
    ranks: RankEnv
    essential_ranks: tuple[int, ...] | None
    needed_packages: dict[str, str]
    dry_run: bool

    def to_json(self) -> dict[str, object]:
        """Return the configuration as JSON values."""
        values = dataclasses.asdict(self)
        return {key: str(v) if isinstance(v, Path) else v for key, v in values.items()}

    def shared(self) -> bytes:
        """Return the settings that must be the same on every rank, as bytes to compare."""
        own = {"data_dir", "run_dir", "resume", "threads", "ranks", "needed_packages", "dry_run"}
        values = {key: value for key, value in self.to_json().items() if key not in own}
        values = without_folders(values)
        values["resumes"] = self.resume is not None  # the folder may differ by rank
        return json.dumps(values, sort_keys=True).encode()

    def decisive(self) -> dict[str, object]:
        """Return the settings that decide this rank's numbers: a checkpoint resumes only under the same ones."""
        values: dict[str, object] = json.loads(self.shared())
        for name in ("eval_every", "eval", "checkpoint_every", "resumes"):
            del values[name]
        for name in ("timeout_s", "silence_s", "slowest_mbyte_s"):
            del values[name]
        # The number of steps may change, unless the learning rate or the clip depends on it.
        if self.lr_schedule == "constant" and not self.task_options.get("anneal_clip"):
            del values["steps"]
        return values | {"rank": self.ranks.rank, "ranks": self.ranks.world_size}

    def timeout_for_s(self, model_bytes: int) -> float:
        """Return how long a rank waits in a collective: the launcher's timeout plus the model's time.

        The launcher does not know the model. At worst every rank sends it whole to every other one, and all of that
        goes over the slowest link or uplink: gossip between all ranks of two nodes. MODEL_PATIENCE times that is added.
        """
        if self.slowest_mbyte_s is None:
            return self.timeout_s
        copies = self.ranks.world_size * (self.ranks.world_size - 1)
        model_s = MODEL_PATIENCE * copies * model_bytes / 1e6 / self.slowest_mbyte_s
        return min(self.timeout_s + model_s, MOST_TIMEOUT_S)

    @property
    def has_own_code(self) -> bool:
        """Return whether the task or the strategy is the user's own."""
        return _is_own(self.task) or _is_own(self.strategy)

    def saves_after(self, step: int) -> bool:
        """Return whether to write a checkpoint after this step; not after the last, whose exchange ends the run."""
        return self.checkpoint_every > 0 and step % self.checkpoint_every == 0 and step < self.steps

    def tests_after(self, step: int) -> bool:
        """Return whether to evaluate the model after this step: the last, and each eval_every-th."""
        return step == self.steps or (self.eval_every > 0 and step % self.eval_every == 0)


def without_folders(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings in which a user's own task and strategy are without their folders, which differ by machine."""
    names = {key: str(settings[key]) for key in ("task", "strategy") if key in settings}
    own = {key: name for key, name in names.items() if _is_own(name)}
    return {**settings, **{key: Path(name).name for key, name in own.items()}}


def _is_own(name: str) -> bool:
    """Return whether a task or strategy is the user's own: `./mine.py:Mine`."""
    return ".py:" in name


def parse_config(
    argv: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    learnt: type[AnyTask] | None = None,
) -> TrainConfig:
    """Parse flags and environment.

    Args:
        argv: the flags.
        environ: the environment.
        learnt: the task's class; None: the one that --task names.

    Raises:
        OptionError: something is unknown, of the wrong type, out of range or contradictory.
        SystemExit: 0, after `--help`.
    """
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    given = args
    if rest:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown("argument", rest[0].partition("=")[0], flags)
    ranks = _by_hand(args) if args.nnodes is not None else _from_torchrun(args, environ)
    task = learnt or _class(args, task_class, args.task)
    task_options = _task_options(args, task)
    made = task(**task_options) if task else None
    if made is not None:
        parser.set_defaults(**made.flag_defaults(ranks.world_size))
        args = parser.parse_args(argv)
        _check_settled(args, parser, type(made))
        made.check_batch(args.batch_size)
    strategy = _strategy(args, task)
    wants = strategy or Strategy
    args.optimizer = args.optimizer or ("sgd" if wants.replaces_gradient else "adamw")
    words = {
        "optimizer": DEFAULT_LR,
        "lr_schedule": SCHEDULES,
        "autocast": AUTOCASTS,
        "shard": SHARDS,
        "eval": EVALS,
    }
    for name, known in words.items():
        if getattr(args, name) not in known:
            raise unknown(name.replace("_", "-"), getattr(args, name), known)
    run_dir = args.run_dir or environ.get(RUN_DIR)
    config = TrainConfig(
        task=args.task,
        task_options=task_options,
        data_dir=args.data_dir,
        shard=args.shard,
        alpha=_or(args.alpha, DEFAULT_ALPHA),
        strategy=args.strategy,
        strategy_options=_strategy_options(args, strategy),
        steps=args.steps,
        batch_size=args.batch_size,
        accumulate=args.accumulate,
        optimizer=args.optimizer,
        lr=_or(args.lr, wants.default_lr or DEFAULT_LR[args.optimizer]),
        momentum=args.momentum,
        weight_decay=_or(args.weight_decay, DEFAULT_WEIGHT_DECAY[args.optimizer]),
        warmup_steps=args.warmup_steps,
        lr_schedule=args.lr_schedule,
        final_lr=_or(args.final_lr, DEFAULT_FINAL_LR),
        clip_norm=args.clip_norm,
        autocast=args.autocast,
        seed=args.seed,
        threads=_threads(args, environ),
        eval_every=args.eval_every,
        eval=args.eval,
        checkpoint_every=args.checkpoint_every,
        resume=args.resume,
        run_dir=Path(run_dir) if run_dir else None,
        timeout_s=parse_environ(environ, TIMEOUT_S, DEFAULT_TIMEOUT_S),
        silence_s=parse_environ(environ, SILENCE_S, DEFAULT_TIMEOUT_S),
        slowest_mbyte_s=parse_environ(environ, SLOWEST_MBYTE_S, 0.0) or None,
        ranks=ranks,
        essential_ranks=task.essential_ranks if task else None,
        needed_packages=dict(made.needed_packages) if made else {},
        dry_run=args.dry_run,
    )
    _check(config, given)
    if not config.dry_run:
        _check_packages(config.needed_packages)
    if wants.replaces_gradient:
        _check_plain_sgd(config)
    return config


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _threads(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if args.threads is None:
        return parse_environ(environ, "OMP_NUM_THREADS", 1)
    threads: int = args.threads
    return threads


def _strategy_options(args: argparse.Namespace, cls: type[Any] | None) -> dict[str, Value]:
    """Return a value for every option of the strategy, whose class is `cls`."""
    if cls is None:
        return dict(split_settings(args.set))
    options = parse_settings(f"strategy {args.strategy}", cls, args.set)
    cls(**options)  # refuses options that contradict each other
    return options


def _task_options(args: argparse.Namespace, cls: type[Any] | None) -> dict[str, Value]:
    """Return a value for every option of the task, whose class is `cls`; --dropout is short for one."""
    settings = [*args.task_set, *([] if args.dropout is None else [f"dropout={args.dropout}"])]
    words = split_settings(settings, "--task-set")
    if cls is None:
        return dict(words)
    return parse_settings(
        f"task {args.task}", cls, settings, "--task-set", cls.option_defaults(words)
    )


def _class(
    args: argparse.Namespace, find: Callable[[str], type[Any]], name: str
) -> type[Any] | None:
    """Return the class of a name; None in a dry run if the user's own file needs torch, which is not installed here.

    Its options are then checked where torch is.
    """
    try:
        return find(name)
    except ModuleNotFoundError:
        if not args.dry_run:
            raise
        return None


def _strategy(args: argparse.Namespace, task: type[Any] | None) -> type[Any] | None:
    """Return the strategy's class; None if one rank learns alone, or in a dry run as in `_class`."""
    if task is None or not issubclass(task, ActorLearnerTask):
        return _class(args, strategy_class, args.strategy)
    if args.set:
        raise OptionError(
            f"--set: options of strategies, and --task {args.task} has none: --task-set"
        )
    return None


def _check_settled(
    args: argparse.Namespace, parser: argparse.ArgumentParser, task: type[Any]
) -> None:
    """Refuse a flag whose value the task decides."""
    for name, what in task.settled.items():
        if getattr(args, name) != parser.get_default(name):
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag}: under --task {args.task} it follows from {what}")


def _check(config: TrainConfig, given: argparse.Namespace) -> None:
    bounds = {"steps": 1, "batch_size": 1, "accumulate": 1, "threads": 1}
    bounds |= {
        "eval_every": 0,
        "checkpoint_every": 0,
        "warmup_steps": 0,
        "weight_decay": 0,
        "clip_norm": 0,
    }
    for name, least in bounds.items():
        check_bounds(f"--{name.replace('_', '-')}", getattr(config, name), {"at least": least})
    check_bounds("--seed", config.seed, SEEDS)
    check_bounds("--momentum", config.momentum, {"at least": 0, "below": 1})
    check_bounds("--final-lr", config.final_lr, {"at least": 0, "at most": 1})
    check_bounds("--alpha", config.alpha, ALPHAS)
    check_bounds("--lr", config.lr, {"above": 0})
    check_bounds(TIMEOUT_S, config.timeout_s, {"above": 0, "at most": MOST_TIMEOUT_S})
    check_bounds(SILENCE_S, config.silence_s, {"above": 0, "at most": MOST_TIMEOUT_S})
    check_bounds(SLOWEST_MBYTE_S, config.slowest_mbyte_s or 1, {"above": 0})
    if config.momentum and config.optimizer != "sgd":
        raise OptionError("--momentum is an option of sgd: add --optimizer sgd")
    if config.checkpoint_every and not (config.run_dir or config.dry_run):
        raise OptionError(f"--checkpoint-every needs a folder: --run-dir, or ${RUN_DIR}")
    if given.alpha is not None and config.shard != "dirichlet":
        raise OptionError("--alpha is an option of --shard dirichlet: add it")
    if given.final_lr is not None and config.lr_schedule == "constant":
        raise OptionError("--final-lr is an option of --lr-schedule cosine and linear: add one")
    check_bounds("--warmup-steps", config.warmup_steps, {"at most": config.steps})


def _check_packages(needed: Mapping[str, str]) -> None:
    """Refuse to run without a needed package; a dry run may lack all of them, and does not call this."""
    for package, why in needed.items():
        if importlib.util.find_spec(package) is None:
            raise OptionError(
                f"{why} needs {package}, which is not here: `python -m cluster.image --{package}` builds it into"
                f" the node image, `pip install -e '.[{package}]'` in a checkout is for this Python"
            )


def _check_plain_sgd(config: TrainConfig) -> None:
    """Refuse all but plain SGD: no published algorithm has Adam on signs, or a second momentum."""
    wrong = f"--optimizer {config.optimizer}" if config.optimizer != "sgd" else "--momentum"
    if config.optimizer != "sgd" or config.momentum:
        raise OptionError(
            f"{wrong} with --strategy {config.strategy}, which makes steps of its own out of "
            "gradients: it goes with sgd without momentum, which is its default"
        )


def _by_hand(args: argparse.Namespace) -> RankEnv:
    """Return the place of this rank as flags say it, with one rank per node."""
    check_bounds("--nnodes", args.nnodes, {"at least": 1})
    if args.nnodes > 1 and (args.node_rank is None or args.master_addr is None):
        raise OptionError("--nnodes needs --node-rank and --master-addr: how nodes find each other")
    rank = args.node_rank or 0
    if not 0 <= rank < args.nnodes:
        raise OptionError(f"--node-rank must be 0 to {args.nnodes - 1}, not {rank}")
    port = RankEnv.master_port if args.master_port is None else args.master_port
    check_bounds("--master-port", port, PORTS)
    return RankEnv(
        rank=rank,
        world_size=args.nnodes,
        master_addr=args.master_addr or RankEnv.master_addr,
        master_port=port,
    )


def _from_torchrun(args: argparse.Namespace, environ: Mapping[str, str]) -> RankEnv:
    for name in ("master_addr", "master_port", "node_rank"):
        if getattr(args, name) is not None:
            raise OptionError(f"--{name.replace('_', '-')} needs --nnodes, the number of nodes")
    return read_rank_env(environ)
