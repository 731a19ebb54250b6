"""Translates the arguments of `Trainer.fit` into flags of `python -m node.train`, checked before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from node.base.options import OptionError, check_bounds, unknown
from node.exogym.strategies import Chosen
from node.strategies import STRATEGIES
from node.training.config import TrainConfig, parse_config
from protocol.rank_variables import RUN_DIR

BACKENDS = ("cluster", "local")


@dataclass(frozen=True)
class FitFlags:
    """The arguments of Trainer.fit that say how to train; its docstring explains them."""

    strategy: Chosen | str
    num_nodes: int
    max_steps: int | None
    num_epochs: int
    batch_size: int
    minibatch_size: int | None
    val_size: int | None
    val_interval: int
    autocast: bool
    checkpoint_interval: int | None
    resume: Path | str | None
    seed: int

    def flags(self, train_size: int | None) -> list[str]:
        """Return the flags of node.train.

        Args:
            train_size: samples of all ranks together; None if ranks have data of their own.

        Raises:
            OptionError: something is out of bounds, or arguments contradict each other.
        """
        check_bounds("num_nodes", self.num_nodes, {"at least": 1})
        check_bounds("batch_size", self.batch_size, {"at least": 1})
        minibatch = self.batch_size if self.minibatch_size is None else self.minibatch_size
        check_bounds("minibatch_size", minibatch, {"at least": 1, "at most": self.batch_size})
        if self.batch_size % minibatch:
            raise OptionError(
                f"minibatch_size {minibatch} must divide batch_size {self.batch_size}"
            )
        if self.val_size is not None:
            check_bounds("val_size", self.val_size, {"at least": 1})
        values = {
            "--steps": self._steps(train_size),
            "--batch-size": minibatch,
            "--accumulate": self.batch_size // minibatch,
            "--eval-every": self.val_interval,
            "--checkpoint-every": self.checkpoint_interval or 0,
            "--autocast": "bf16" if self.autocast else "none",
            "--seed": self.seed,
        }
        words = [str(word) for pair in values.items() for word in pair]
        resume = ["--resume", str(Path(self.resume).resolve())] if self.resume else []
        return [*self._strategy(), *words, *resume]

    def _strategy(self) -> Sequence[str]:
        if isinstance(self.strategy, str):
            return "--strategy", self.strategy
        if isinstance(self.strategy, Chosen):
            return self.strategy.flags
        raise OptionError(
            f"strategy must be one of node.exogym or a name ({', '.join(STRATEGIES)}), not "
            f"{type(self.strategy).__name__}; your own is own_strategy('mine.py:Mine')"
        )

    def _steps(self, train_size: int | None) -> int:
        if self.max_steps is not None:
            return self.max_steps
        if train_size is None:
            raise OptionError("max_steps: how many, where ranks have datasets of their own?")
        check_bounds("num_epochs", self.num_epochs, {"at least": 1})
        a_step = self.num_nodes * self.batch_size
        if a_step > train_size:
            raise OptionError(
                f"batch_size {self.batch_size}: {self.num_nodes} ranks want more than "
                f"{train_size} samples for a step"
            )
        return -(-self.num_epochs * train_size // a_step)  # rounded up

    def check(self, train_size: int | None) -> TrainConfig:
        """Return the configuration that rank 0 will have.

        Raises:
            OptionError: see `flags`.
        """
        environ = {
            "RANK": "0",
            "WORLD_SIZE": str(self.num_nodes),
            "MASTER_ADDR": "not yet known",
            "MASTER_PORT": "1",
            RUN_DIR: "not yet known",
        }
        return parse_config(self.flags(train_size), environ)


def launch_options(
    backend: str,
    name: str | None,
    profile: str | None,
    topology: str | None,
    others: Sequence[str],
) -> list[str]:
    """Return the options of cluster.launch that say on which cluster to run.

    Raises:
        OptionError: there is no such backend, or it has no links.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    files = {"--profile": profile, "--topology": topology}
    named = {"--name": name} | {flag: _found_from_here(word) for flag, word in files.items()}
    words = [word for flag, value in named.items() if value is not None for word in (flag, value)]
    if backend == "local" and (words or others):
        raise OptionError("name, profile, topology and launch go with backend='cluster'")
    return [*words, *others]


def _found_from_here(word: str | None) -> str | None:
    """Return a file as an absolute path: the launcher starts in the script's first folder, which it may have left."""
    if not word or not word.endswith((".yml", ".yaml")) or not Path(word).is_file():
        return word
    return str(Path(word).absolute())
