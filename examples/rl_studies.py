"""The studies of compare_rl.py: the runs of each, their flags, and the columns of its table."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept_runs import Row

from cluster.base.paths import PROJECT_DIR
from node.transport import BROADCASTS, ENCODINGS

# Minibatches between two averages: for cart-pole a rollout, for pendulum one pass over it.
ENVIRONMENTS = {"CartPole-v1": 20, "Pendulum-v1": 68}
# Shares of the agents' messages that are dropped in the tests of `comm`.
COMM_LOSSES = [0, 0.25, 0.5, 0.75, 1]
FLAGS: Mapping[str, Mapping[str, Any]] = {
    "envs": {"nargs": "+", "choices": ENVIRONMENTS, "metavar": "ENV"},
    "pull_every": {
        "nargs": "+",
        "type": int,
        "metavar": "STEPS",
        "help": "between pulls (default %(default)s)",
    },
    "max_staleness": {
        "nargs": "+",
        "type": int,
        "metavar": "UPDATES",
        "help": "of reject and pace (default %(default)s)",
    },
    "broadcasts": {"nargs": "+", "choices": BROADCASTS, "metavar": "FORM"},
    "weights": {"nargs": "+", "choices": ENCODINGS, "metavar": "ENCODING"},
    "publish_every": {"type": int, "help": "updates between versions (default %(default)s)"},
    "comm_loss": {
        "nargs": "+",
        "type": float,
        "metavar": "SHARE",
        "help": "of the agents' messages, dropped in training (default %(default)s)",
    },
    "rates": {"nargs": "+", "type": float, "metavar": "LR", "help": "(default %(default)s)"},
    "seeds": {"nargs": "+", "type": int, "metavar": "SEED", "help": "(default %(default)s)"},
    "profiles": {"nargs": "+", "metavar": "PROFILE", "help": "(default %(default)s)"},
    "nodes": {"type": int, "help": "(default %(default)s)"},
    "steps": {"type": int, "help": "of a run; 0: the task's own (default %(default)s)"},
    "eval_every": {"type": int, "help": "steps between tests; 0: at the end (default %(default)s)"},
    "task_set": {"nargs": "+", "metavar": "KEY=VALUE", "help": "more options of the task"},
    "name": {"help": "the cluster (default %(default)s)"},
    "out": {"type": Path, "help": "folder (default runs/rl-STUDY)"},
    "no_verify": {"action": "store_true", "help": "do not measure the links before each run"},
    "quick": {"action": "store_true", "help": "a short form, to see that it works"},
    "pictures": {"action": "store_true", "help": "draw into --out, as SVG; wants matplotlib"},
}
COMMON: Mapping[str, Any] = {
    "nodes": 3,
    "profiles": ["mobile"],
    "seeds": [0, 1, 2],
    "steps": 0,
    "eval_every": 0,
    "task_set": [],
    "name": "rl",
    "out": None,
    **dict.fromkeys(("no_verify", "quick", "pictures"), False),
}
QUICK: Mapping[str, Any] = {
    "nodes": 2,
    "profiles": ["wan"],
    "seeds": [0],
    "steps": 40,
    "task_set": ["eval_episodes=5"],
    "no_verify": True,
}


@dataclass(frozen=True)
class Case:
    """One run of a study.

    Attributes:
        label: the columns that name it, with its seed last.
        words: its arguments for node.train.
    """

    label: Row
    words: Sequence[str]

    @property
    def name(self) -> str:
        """Its name, for output and files."""
        return re.sub(r"[^\w.]+", "-", "-".join(map(str, self.label.values())))


@dataclass(frozen=True)
class Study:
    """A study: its runs, and the columns of its table.

    Attributes:
        what: one line of help.
        cases: returns the runs over a profile.
        defaults: the values of its flags; it has no other flags.
        quick: the values of its flags with --quick.
        lines: for each part of the table, the columns by which runs are averaged.
        columns: the columns of the table.
    """

    what: str
    cases: Callable[[argparse.Namespace, str], Iterable[Case]]
    defaults: Mapping[str, Any]
    quick: Mapping[str, Any]
    lines: Sequence[Sequence[str]]
    columns: Sequence[str]


def staleness_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every pull interval; tests are tiny, because the learner does not answer meanwhile."""
    tests = {"optimum": "false", "eval_instances": 10, "eval_most_steps": 16}
    for seed in args.seeds:
        for steps in args.pull_every:
            label = {"profile": profile, "pull_every": steps, "seed": seed}
            own = ["--seed", str(seed)]
            yield Case(label, words(args, "mapf", {"pull_every": steps, **tests}, own))


def corrections_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every rule, with a learning rate that goes down to 0 and a short window.

    At a constant rate a good policy forgets now and then, so that the last test is one draw of that. With the task's
    own window, up to (2 x 16 + 4) / 2 = 18 updates (two actors' windows and the queue, by pieces per update) would come
    on top of S with pace-S, so that no S differed from none; with this one, 4.
    """
    decays = ["--lr-schedule", "linear", "--final-lr", "0"]
    for seed in args.seeds:
        for steps in args.pull_every:
            for rule, options in rules(args.max_staleness).items():
                label = {"profile": profile, "pull_every": steps, "rule": rule, "seed": seed}
                options = {"pull_every": steps, "window": 2, **options}
                yield Case(label, words(args, "impala", options, [*decays, "--seed", str(seed)]))


def rules(bounds: Iterable[int]) -> dict[str, Row]:
    """Return the treatments of old experience, as options of the task."""
    either: dict[str, Row] = {name: {"correction": name} for name in ("none", "vtrace")}
    return either | {
        f"{how}-{bound}": {"correction": "none", "max_staleness": bound, "when_stale": how}
        for how in ("reject", "pace")
        for bound in bounds
    }


def comm_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every share of messages that is dropped in training; each run tests at all of COMM_LOSSES."""
    also = ",".join(f"{loss:g}" for loss in COMM_LOSSES if loss)
    tests = {"eval_comm_loss": 0, "eval_comm_loss_also": also, "optimum": "false"}
    for seed in args.seeds:
        for loss in args.comm_loss:
            label = {"profile": profile, "comm_loss": loss, "seed": seed}
            options = {"comm_loss": loss, **tests}
            yield Case(label, words(args, "mapf", options, ["--seed", str(seed)]))


def seeds_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every environment with every seed."""
    for env in args.envs:
        fedavg = ["--strategy", "fedavg", "--set", f"H={ENVIRONMENTS[env]}", "--eval", "after"]
        for seed in args.seeds:
            label = {"profile": profile, "env": env, "seed": seed}
            yield Case(label, words(args, "ppo", {"env": env}, [*fedavg, "--seed", str(seed)]))


def broadcast_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every broadcast topology with every encoding of weights; 2 million parameters."""
    sizes = {"hidden": 1000, "eval_episodes": 5, "publish_every": args.publish_every}
    for seed in args.seeds:
        for form in args.broadcasts:
            for encoding in args.weights:
                label = {"profile": Path(profile).stem, "broadcast": form, "weights": encoding}
                label |= {"seed": seed}
                options = {"broadcast": form, "weights": encoding, "pull_every": 0, **sizes}
                own = ["--batch-size", "1", "--seed", str(seed)]
                yield Case(label, words(args, "impala", options, own))


def deltas_cases(args: argparse.Namespace, profile: str) -> Iterable[Case]:
    """Yield every learning rate; actors ask for every published version."""
    options = {"weights": "delta", "publish_every": args.publish_every, "pull_every": 0}
    tests = {"optimum": "false", "eval_instances": 10, "eval_most_steps": 16}
    for seed in args.seeds:
        for rate in args.rates:
            label = {"profile": profile, "lr": rate, "seed": seed}
            own = ["--lr", str(rate), "--lr-schedule", "constant", "--seed", str(seed)]
            yield Case(label, words(args, "mapf", {**options, **tests}, own))


def words(
    args: argparse.Namespace, task: str, options: Mapping[str, object], own: Sequence[str]
) -> list[str]:
    """Return a run's arguments for node.train; --task-set comes last, so it prevails."""
    settings = [*(f"{name}={value}" for name, value in options.items()), *args.task_set]
    return [
        *("--task", task, *own),
        *(["--steps", str(args.steps)] if args.steps else []),
        *(["--eval-every", str(args.eval_every)] if args.eval_every else []),
        *(word for setting in settings for word in ("--task-set", setting)),
    ]


STUDIES = {
    "staleness": Study(
        "predicted over measured age of actors' weights, by profile and pull interval",
        staleness_cases,
        {
            **COMMON,
            "profiles": ["wan", "mobile", "poor"],
            "pull_every": [50, 200, 800],
            "seeds": [1],
            "steps": 600,
        },
        {
            **QUICK,
            "pull_every": [20, 80],
            "steps": 60,
            "task_set": ["learn_after=500", "most_steps=16"],
        },
        [["profile", "pull_every"]],
        [
            *("profile", "pull_every", "predicted_age_s", "measured_age_s", "ratio", "worst"),
            *("ratios", "stale_updates_median", "stale_updates_p95", "stale_median_s"),
            *("stale_p95_s", "runs", "status"),
        ],
    ),
    "corrections": Study(
        "return of impala, by what is done about old experience",
        corrections_cases,
        {
            **COMMON,
            "pull_every": [100],
            "max_staleness": [2, 8],
            "steps": 1500,
            "eval_every": 150,
        },
        {**QUICK, "pull_every": [20], "max_staleness": [2], "eval_every": 20},
        [["profile", "pull_every", "rule"]],
        [
            *("profile", "pull_every", "rule", "return_at_end", "returns", "best_return"),
            *("loop_s", "env_steps", "rejected_share", "kept_over_all_steps"),
            *("stale_updates_median", "runs", "status"),
        ],
    ),
    "broadcast": Study(
        "seconds until all actors have a version of the weights, by how it is sent",
        broadcast_cases,
        {
            **COMMON,
            "nodes": 9,
            "profiles": [str(PROJECT_DIR / "examples" / "uplinks.yml")],
            "broadcasts": list(BROADCASTS),
            "weights": ["f32"],
            "publish_every": 1000,
            "seeds": [1],
            "steps": 3100,
        },
        {**QUICK, "nodes": 3, "weights": ["f32"], "publish_every": 20, "steps": 100},
        [["profile", "broadcast", "weights"]],
        [
            *("profile", "broadcast", "weights", "broadcast_s", "bound_s", "broadcast_ratio"),
            *("timed", "carried_mbyte", "changed", "loop_s", "runs", "status"),
        ],
    ),
    "deltas": Study(
        "share of weights whose bf16 changes between versions, by learning rate",
        deltas_cases,
        {
            **COMMON,
            "profiles": ["wan"],
            "rates": [1e-3, 1e-4, 1e-5, 1e-6],
            "publish_every": 1,
            "seeds": [1],
            "steps": 400,
        },
        {
            **QUICK,
            "rates": [1e-3, 1e-6],
            "publish_every": 1,
            "task_set": ["learn_after=500", "most_steps=16"],
        },
        [["profile", "lr"]],
        ["profile", "lr", "changed", "carried_mbyte", "loop_s", "runs", "status"],
    ),
    "comm": Study(
        "share of instances that mapf solves while messages are dropped, by what was dropped in training",
        comm_cases,
        {**COMMON, "comm_loss": [0.0, 0.5]},
        {
            **QUICK,
            "comm_loss": [0.0, 0.5],
            "task_set": ["learn_after=500", "most_steps=16", "eval_instances=10"],
        },
        [["profile", "comm_loss"]],
        [
            *("profile", "comm_loss", *(f"success_at_{loss:g}" for loss in COMM_LOSSES)),
            *("loop_s", "carried_mbyte", "runs", "status"),
        ],
    ),
    "seeds": Study(
        "return of ppo, seed by seed",
        seeds_cases,
        {**COMMON, "profiles": ["wan"], "seeds": [1, 2, 3, 4, 5], "envs": list(ENVIRONMENTS)},
        {**QUICK, "seeds": [1, 2], "envs": ["CartPole-v1"]},
        [["profile", "env", "seed"], ["profile", "env"]],
        [
            *("profile", "env", "seed", "return_at_end", "loop_s", "wall_s", "env_steps"),
            *("carried_mbyte", "runs", "status"),
        ],
    ),
}
