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
SHARDS = ("iid", "dirichlet")
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


def make_parser() -> argparse.ArgumentParser:
    """Return a parser with all flags of node.train, and the help."""
    parser = Parser(
        prog="python -m node.train",
        usage=argparse.SUPPRESS,
        description=EXAMPLES,
        epilog=_describe(
            "strategies and their --set options:",
            {name: strategy_class(name) for name in STRATEGIES},
            "  FILE.py:CLASS    your own: node/strategies/base.py shows how",
        )
        + "\n"
        + _describe(
            "tasks and their --task-set options:",
            {name: task_class(name) for name in TASKS},
            "  FILE.py:NAME     your own: node/tasks/user_task.py shows how",
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
    add("--optimizer", help=f"{', '.join(DEFAULT_LR)} (default adamw; sgd under demo)")
    add("--lr", type=number, help=f"learning rate (default {DEFAULT_LR}; 0.001 under demo)")
    add("--momentum", type=number, default=0.0, help="momentum of sgd (default 0)")
    add("--weight-decay", type=number, help=f"a step (default {DEFAULT_WEIGHT_DECAY})")
    add("--warmup-steps", type=int, default=0, help="steps until the full learning rate")
    add(
        "--lr-schedule",
        default="constant",
        help="how the learning rate goes: constant, cosine or linear",
    )
    add(
        "--final-lr",
        type=number,
        help=f"cosine, linear: share left at the end (default {DEFAULT_FINAL_LR})",
    )
    add("--clip-norm", type=number, default=0.0, help="longest gradient (default 0: any)")
    add("--autocast", default="none", help="precision of the model's work: none, or bf16")
    add("--seed", type=int, default=1, help="of parameters, sample order, dropout (default 1)")
    add("--threads", type=int, help="CPU threads of a rank (default $OMP_NUM_THREADS, else 1)")
    add("--eval-every", type=int, default=0, help="evaluate every N steps (default: at the end)")
    add(
        "--eval",
        default="during",
        help="during: at once, by rank 0, of what ranks last agreed on; after: when the last step "
        "is done, of the average over all ranks, who keep a copy for each test (default during)",
    )
    add("--checkpoint-every", type=int, default=0, help="write one every N steps (default: never)")
    add("--resume", type=Path, metavar="FOLDER", help="go on from the latest checkpoint in it")
    where = "where to run, by hand (otherwise torchrun's environment says it)"
    add = parser.add_argument_group(where).add_argument
    add("--nnodes", type=int, help="how many nodes, one rank each")
    add("--node-rank", type=int, help="which of them this is, from 0")
    add("--master-addr", help="name or address of node 0")
    add("--master-port", type=int, help=f"a free port on it (default {RENDEZVOUS_PORT})")
    add = parser.add_argument_group("output").add_argument
    add("--run-dir", type=Path, help=f"for metrics and {MODEL} (default ${RUN_DIR})")
    add("--dry-run", action="store_true", help="print the resolved configuration as JSON and stop")
    return parser


def _describe(title: str, classes: Mapping[str, type], own: str) -> str:
    """Return the first docstring line and the options of each class, then how to add one's own."""
    lines = [title]
    for name, cls in classes.items():
        lines.append(f"  {name:<16} {(cls.__doc__ or '').splitlines()[0]}")
        lines += [f"      {line}" for line in describe_options(cls)]
    return "\n".join([*lines, own])
