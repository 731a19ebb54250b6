"""The command line of `python -m node.train`, and the resolved configuration it becomes.

Precedence: flag, then environment (torchrun's variables, GRADWIRE_*), then default. What a user can
get wrong is refused here, before torch is imported and before any process group exists.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from node.options import (
    OptionError,
    Value,
    check_bounds,
    describe_options,
    parse_environ,
    parse_settings,
    parse_value,
    split_settings,
    unknown,
)
from node.ranks import DEFAULT_PORT, Ranks, read_ranks
from node.strategies import STRATEGIES, strategy_class
from node.tasks import TASKS, task_class

EXAMPLES = """\
examples:
  python -m node.train --steps 50                        alone, one process
  torchrun --nproc-per-node 3 -m node.train              three ranks on this machine
  python -m node.train --strategy fedavg --set H=50      average every 50 steps
  python -m node.train --task language --task-set size=medium --schedule cosine --warmup-steps 20
  python -m node.train --master-addr node1 --nnodes 3 --node-rank 1
                                                         by hand, once on each node
  python -m node.train --dry-run                         print the resolved configuration
"""
# Fashion-MNIST, fedavg H=20, 3 ranks, 200 steps: test accuracy 0.878 with batch 64, lr 0.002 and
# dropout 0.1 (0.867 with lr 0.001 and dropout 0.25; 0.855 with batch 32).
DEFAULT_LR = {"adamw": 0.002, "sgd": 0.05}
DEFAULT_WEIGHT_DECAY = {"adamw": 0.01, "sgd": 0.0}  # torch's own
SCHEDULES = ("constant", "cosine")
AUTOCASTS = ("none", "bf16")
SHARDS = ("iid", "dirichlet")
DEFAULT_ALPHA = 0.3
DEFAULT_FINAL_LR = 0.1
# torch's own default for gloo; the launcher computes a better one from the links.
DEFAULT_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run, under the flags' names."""

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
    schedule: str
    final_lr: float
    clip_norm: float
    autocast: str
    seed: int
    threads: int
    eval_every: int
    checkpoint_every: int
    resume: Path | None
    run_dir: Path | None
    timeout_s: float
    ranks: Ranks
    dry_run: bool

    def to_json(self) -> dict[str, object]:
        """The configuration as JSON values."""
        values = dataclasses.asdict(self)
        return {key: str(v) if isinstance(v, Path) else v for key, v in values.items()}

    def shared(self) -> bytes:
        """What must be the same on every rank, as bytes to compare."""
        own = {"data_dir", "run_dir", "resume", "threads", "ranks", "dry_run"}
        values = {key: value for key, value in self.to_json().items() if key not in own}
        return json.dumps(values, sort_keys=True).encode()

    def decisive(self) -> dict[str, object]:
        """What decides the numbers of this rank: a checkpoint goes on only with the same."""
        values: dict[str, object] = json.loads(self.shared())
        for name in ("eval_every", "checkpoint_every", "timeout_s"):
            del values[name]
        if self.schedule == "constant":
            del values["steps"]  # more of them may follow
        return values | {"rank": self.ranks.rank, "ranks": self.ranks.world_size}

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is written: not after the last step, whose exchange ends the run."""
        return self.checkpoint_every > 0 and step % self.checkpoint_every == 0 and step < self.steps

    def tests_after(self, step: int) -> bool:
        """Whether the model is evaluated after this step: the last, and each eval_every-th."""
        return step == self.steps or (self.eval_every > 0 and step % self.eval_every == 0)


def parse_config(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> TrainConfig:
    """Read flags and environment.

    Raises:
        OptionError: something is unknown, of the wrong type, out of range or contradictory.
        SystemExit: 0, after `--help`.
    """
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    if rest:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown("argument", rest[0].partition("=")[0], flags)
    words = {
        "optimizer": DEFAULT_LR,
        "schedule": SCHEDULES,
        "autocast": AUTOCASTS,
        "shard": SHARDS,
    }
    for name, known in words.items():
        if getattr(args, name) not in known:
            raise unknown(name, getattr(args, name), known)
    run_dir = args.run_dir or environ.get("GRADWIRE_RUN_DIR")
    config = TrainConfig(
        task=args.task,
        task_options=_task_options(args),
        data_dir=args.data_dir,
        shard=args.shard,
        alpha=_or(args.alpha, DEFAULT_ALPHA),
        strategy=args.strategy,
        strategy_options=_strategy_options(args),
        steps=args.steps,
        batch_size=args.batch_size,
        accumulate=args.accumulate,
        optimizer=args.optimizer,
        lr=_or(args.lr, DEFAULT_LR[args.optimizer]),
        momentum=args.momentum,
        weight_decay=_or(args.weight_decay, DEFAULT_WEIGHT_DECAY[args.optimizer]),
        warmup_steps=args.warmup_steps,
        schedule=args.schedule,
        final_lr=_or(args.final_lr, DEFAULT_FINAL_LR),
        clip_norm=args.clip_norm,
        autocast=args.autocast,
        seed=args.seed,
        threads=args.threads or parse_environ(environ, "OMP_NUM_THREADS", 1),
        eval_every=args.eval_every,
        checkpoint_every=args.checkpoint_every,
        resume=args.resume,
        run_dir=Path(run_dir) if run_dir else None,
        timeout_s=parse_environ(environ, "GRADWIRE_TIMEOUT_S", DEFAULT_TIMEOUT_S),
        ranks=_by_hand(args) if args.nnodes is not None else _from_torchrun(args, environ),
        dry_run=args.dry_run,
    )
    _check(config, args)
    return config


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _strategy_options(args: argparse.Namespace) -> dict[str, Value]:
    """A value for every option of the strategy."""
    cls = _class(args, strategy_class, args.strategy)
    if cls is None:
        return dict(split_settings(args.set))
    options = parse_settings(f"strategy {args.strategy}", cls, args.set)
    cls(**options)  # which refuses options that do not go together
    return options


def _task_options(args: argparse.Namespace) -> dict[str, Value]:
    """A value for every option of the task; --dropout is short for one."""
    settings = [*args.task_set, *([] if args.dropout is None else [f"dropout={args.dropout}"])]
    cls = _class(args, task_class, args.task)
    if cls is None:
        return dict(split_settings(settings, "--task-set"))
    return parse_settings(f"task {args.task}", cls, settings, "--task-set")


def _class(
    args: argparse.Namespace, find: Callable[[str], type[Any]], name: str
) -> type[Any] | None:
    """What a name stands for; None for a dry run where the user's own file wants torch, which is not here.

    Its options are then checked where it is.
    """
    try:
        return find(name)
    except ModuleNotFoundError:
        if not args.dry_run:
            raise
        return None


def _check(config: TrainConfig, args: argparse.Namespace) -> None:
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
    check_bounds("--momentum", config.momentum, {"at least": 0, "below": 1})
    check_bounds("--final-lr", config.final_lr, {"at least": 0, "at most": 1})
    check_bounds("--alpha", config.alpha, {"above": 0})
    if config.lr <= 0 or config.timeout_s <= 0:
        raise OptionError("--lr and GRADWIRE_TIMEOUT_S must be above 0")
    if config.momentum and config.optimizer != "sgd":
        raise OptionError("--momentum is an option of sgd: add --optimizer sgd")
    if config.checkpoint_every and not (config.run_dir or config.dry_run):
        raise OptionError("--checkpoint-every needs a folder: --run-dir, or $GRADWIRE_RUN_DIR")
    if args.alpha is not None and config.shard != "dirichlet":
        raise OptionError("--alpha is an option of --shard dirichlet: add it")
    if args.final_lr is not None and config.schedule != "cosine":
        raise OptionError("--final-lr is an option of --schedule cosine: add it")
    check_bounds("--warmup-steps", config.warmup_steps, {"at most": config.steps})


def _by_hand(args: argparse.Namespace) -> Ranks:
    """One rank a node, named by flags."""
    check_bounds("--nnodes", args.nnodes, {"at least": 1})
    if args.nnodes > 1 and (args.node_rank is None or args.master_addr is None):
        raise OptionError("--nnodes needs --node-rank and --master-addr: how nodes find each other")
    rank = args.node_rank or 0
    if not 0 <= rank < args.nnodes:
        raise OptionError(f"--node-rank must be 0 to {args.nnodes - 1}, not {rank}")
    return Ranks(
        rank=rank,
        world_size=args.nnodes,
        master_addr=args.master_addr or Ranks.master_addr,
        master_port=args.master_port or Ranks.master_port,
    )


def _from_torchrun(args: argparse.Namespace, environ: Mapping[str, str]) -> Ranks:
    for name in ("master_addr", "master_port", "node_rank"):
        if getattr(args, name) is not None:
            raise OptionError(f"--{name.replace('_', '-')} needs --nnodes, the number of nodes")
    return read_ranks(environ)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise, where argparse prints the usage: every mistake ends as one line."""
        raise OptionError(message)


def number(word: str) -> float:
    """For argparse, which uses the function's name in its message."""
    return float(parse_value("a flag", word, float))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m node.train",
        usage=argparse.SUPPRESS,
        description=EXAMPLES,
        epilog=f"{_strategy_help()}\n{_task_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("what to train").add_argument
    add(
        "--task",
        default="fashion-mnist",
        help=f"model and data: {', '.join(TASKS)} (default fashion-mnist)",
    )
    add("--task-set", action="append", default=[], metavar="KEY=VALUE", help="its options: below")
    add("--dropout", type=number, help="short for --task-set dropout=")
    add("--data-dir", type=Path, help="the task's data (default: where the image has it, ./data)")
    add("--shard", default="iid", help="each rank's samples: iid, or dirichlet, skewed by class")
    add("--alpha", type=number, help=f"dirichlet: small is skewed (default {DEFAULT_ALPHA})")
    add = parser.add_argument_group("how to train").add_argument
    add(
        "--strategy",
        default="fedavg",
        help=f"how ranks agree: {', '.join(STRATEGIES)} (default fedavg)",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="its options: see below")
    add("--steps", type=int, default=200, help="steps of every rank (default 200)")
    add("--batch-size", type=int, default=64, help="samples a rank and step (default 64)")
    add("--accumulate", type=int, default=1, help="batches whose gradients make a step (default 1)")
    add("--optimizer", default="adamw", help=f"{', '.join(DEFAULT_LR)} (default adamw)")
    add("--lr", type=number, help=f"learning rate (default {DEFAULT_LR})")
    add("--momentum", type=number, default=0.0, help="momentum of sgd (default 0)")
    add("--weight-decay", type=number, help=f"a step (default {DEFAULT_WEIGHT_DECAY})")
    add("--warmup-steps", type=int, default=0, help="steps until the full learning rate")
    add("--schedule", default="constant", help="of the learning rate: constant, or cosine")
    add(
        "--final-lr",
        type=number,
        help=f"cosine: share left at the end (default {DEFAULT_FINAL_LR})",
    )
    add("--clip-norm", type=number, default=0.0, help="longest gradient (default 0: any)")
    add("--autocast", default="none", help="precision of the model's work: none, or bf16")
    add("--seed", type=int, default=1, help="of parameters, sample order, dropout (default 1)")
    add("--threads", type=int, help="CPU threads of a rank (default $OMP_NUM_THREADS, else 1)")
    add("--eval-every", type=int, default=0, help="evaluate every N steps (default: at the end)")
    add("--checkpoint-every", type=int, default=0, help="write one every N steps (default: never)")
    add("--resume", type=Path, metavar="FOLDER", help="go on from the latest checkpoint in it")
    where = "where to run, by hand (otherwise torchrun's environment says it)"
    add = parser.add_argument_group(where).add_argument
    add("--nnodes", type=int, help="how many nodes, one rank each")
    add("--node-rank", type=int, help="which of them this is, from 0")
    add("--master-addr", help="name or address of node 0")
    add("--master-port", type=int, help=f"a free port on it (default {DEFAULT_PORT})")
    add = parser.add_argument_group("output").add_argument
    add("--run-dir", type=Path, help="for metrics and model.pt (default $GRADWIRE_RUN_DIR)")
    add("--dry-run", action="store_true", help="print the resolved configuration as JSON and stop")
    return parser


def _strategy_help() -> str:
    lines = ["strategies and their --set options:"]
    for name in STRATEGIES:
        cls = strategy_class(name)
        lines.append(f"  {name:<16} {(cls.__doc__ or '').splitlines()[0]}")
        lines += [f"      {line}" for line in describe_options(cls)]
    lines.append("  FILE.py:CLASS    your own: node/strategies/base.py shows how")
    return "\n".join(lines)


def _task_help() -> str:
    lines = ["tasks and their --task-set options:"]
    for name in TASKS:
        cls = task_class(name)
        lines.append(f"  {name:<16} {(cls.__doc__ or '').splitlines()[0]}")
        lines += [f"      {line}" for line in describe_options(cls)]
    lines.append("  FILE.py:NAME     your own: node/tasks/own.py shows how")
    return "\n".join(lines)
