"""The flags of `python -m node.train`, their defaults and their help."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from node.base.options import OptionError, describe_options, parse_value
from node.strategies import STRATEGIES, strategy_class
from node.tasks import TASKS, task_class
from protocol.places import MODEL
from protocol.ports import RENDEZVOUS_PORT
from protocol.rank_variables import RUN_DIR

EXAMPLES = """\
examples:
  python -m node.train --steps 50                        alone, one process
  torchrun --nproc-per-node 3 -m node.train              three ranks on this machine
  python -m node.train --strategy fedavg --set H=50      average every 50 steps
  python -m node.train --task language --task-set size=medium --lr-schedule cosine --warmup-steps 20
  python -m node.train --master-addr node1 --nnodes 3 --node-rank 1
                                                         by hand, once on each node
  python -m node.train --dry-run                         print the resolved configuration
"""
# Fashion-MNIST, fedavg H=20, 3 ranks, 200 steps: test accuracy 0.878 with batch 64, lr 0.002 and
# dropout 0.1 (0.867 with lr 0.001 and dropout 0.25; 0.855 with batch 32).
DEFAULT_LR = {"adamw": 0.002, "sgd": 0.05}
DEFAULT_WEIGHT_DECAY = {"adamw": 0.01, "sgd": 0.0}  # torch's own
SCHEDULES = ("constant", "cosine", "linear")
EVALS = ("during", "after")
AUTOCASTS = ("none", "bf16")
SHARDS = ("iid", "fixed", "dirichlet")
DEFAULT_ALPHA = 0.3
DEFAULT_FINAL_LR = 0.1


class Parser(argparse.ArgumentParser):
    """A parser that reports every mistake as one line."""

    def error(self, message: str) -> NoReturn:
        """Raise OptionError; argparse itself would print the usage."""
        raise OptionError(message)


def number(word: str) -> float:
    """Parse a number. argparse uses the name of this function in its message."""
    return float(parse_value("a flag", word, float))


def _each(defaults: Mapping[str, float]) -> str:
    return ", ".join(f"{value:g} with {name}" for name, value in defaults.items())


def make_parser() -> argparse.ArgumentParser:
    """Return a parser with all flags of node.train, and the help."""
    parser = Parser(
        prog="python -m node.train",
        usage=argparse.SUPPRESS,
        description=EXAMPLES,
        epilog=_describe(
            "strategies and their --set options:",
            {name: strategy_class(name) for name in STRATEGIES},
            "  FILE.py:CLASS    your own: see node/strategies/base.py",
        )
        + "\n"
        + _describe(
            "tasks and their --task-set options:",
            {name: task_class(name) for name in TASKS},
            "  FILE.py:NAME     your own: see node/tasks/user_task.py",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("what to train").add_argument
    add(
        "--task",
        default="fashion-mnist",
        help=f"model and data: {', '.join(TASKS)} (default fashion-mnist)",
    )
    add(
        "--task-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the task, see below (repeatable)",
    )
    add("--dropout", type=number, help="same as --task-set dropout=")
    add("--data-dir", type=Path, help="folder of the task's data (default: the image's, or ./data)")
    add(
        "--shard",
        default="iid",
        help="samples of a rank: iid, others in each epoch; fixed, always the same; dirichlet, the same and skewed by"
        " class (default iid)",
    )
    add("--alpha", type=number, help=f"dirichlet: smaller is more skewed (default {DEFAULT_ALPHA})")
    add = parser.add_argument_group("how to train").add_argument
    add(
        "--strategy",
        default="fedavg",
        help=f"how ranks synchronise: {', '.join(STRATEGIES)} (default fedavg)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the strategy, see below (repeatable)",
    )
    add("--steps", type=int, default=200, help="steps per rank (default 200)")
    add("--batch-size", type=int, default=64, help="samples per rank and batch (default 64)")
    add(
        "--accumulate", type=int, default=1, help="batches per step, gradients averaged (default 1)"
    )
    add("--optimizer", help=f"{', '.join(DEFAULT_LR)} (default adamw; sgd with demo)")
    add("--lr", type=number, help=f"learning rate (default {_each(DEFAULT_LR)}; 0.001 with demo)")
    add("--momentum", type=number, default=0.0, help="momentum of sgd (default 0)")
    add(
        "--weight-decay",
        type=number,
        help=f"weight decay per step (default {_each(DEFAULT_WEIGHT_DECAY)})",
    )
    add("--warmup-steps", type=int, default=0, help="steps of linear warm-up (default 0)")
    add(
        "--lr-schedule",
        default="constant",
        help="learning rate schedule: constant, cosine or linear (default constant)",
    )
    add(
        "--final-lr",
        type=number,
        help=f"cosine, linear: final share of --lr (default {DEFAULT_FINAL_LR})",
    )
    add("--clip-norm", type=number, default=0.0, help="maximum gradient norm (default 0: no limit)")
    add("--autocast", default="none", help="mixed precision: none or bf16 (default none)")
    add("--seed", type=int, default=1, help="seed of parameters, sample order, dropout (default 1)")
    add("--threads", type=int, help="CPU threads per rank (default $OMP_NUM_THREADS, else 1)")
    add(
        "--eval-every",
        type=int,
        default=0,
        help="evaluate every N steps (default: only at the end)",
    )
    add(
        "--eval",
        default="during",
        help="during: rank 0 tests at once what the ranks last agreed on (sparta, gossip, eager-diloco and fedavg's"
        " islands: what it has itself); after: test after the last step, on the average over all ranks, which keep a"
        " copy per test (default during)",
    )
    add(
        "--checkpoint-every",
        type=int,
        default=0,
        help="write a checkpoint every N steps (default: never)",
    )
    add("--resume", type=Path, metavar="FOLDER", help="resume from the latest checkpoint in FOLDER")
    where = "where to run, by hand (default: torchrun's environment)"
    add = parser.add_argument_group(where).add_argument
    add("--nnodes", type=int, help="number of nodes, one rank each")
    # With underscores, too, as torchrun has them.
    add("--node-rank", "--node_rank", type=int, help="rank of this node, from 0")
    add("--master-addr", "--master_addr", help="name or address of node 0")
    port = f"free port on node 0 (default {RENDEZVOUS_PORT})"
    add("--master-port", "--master_port", type=int, help=port)
    add = parser.add_argument_group("output").add_argument
    add("--run-dir", type=Path, help=f"folder for metrics and {MODEL} (default ${RUN_DIR})")
    add("--dry-run", action="store_true", help="print the resolved configuration as JSON and exit")
    return parser


def _describe(title: str, classes: Mapping[str, type], own: str) -> str:
    """Return the first docstring line and the options of each class, then how to add one's own."""
    lines = [title]
    for name, cls in classes.items():
        lines.append(f"  {name:<16} {(cls.__doc__ or '').splitlines()[0]}")
        lines += [f"      {line}" for line in describe_options(cls)]
    return "\n".join([*lines, own])
