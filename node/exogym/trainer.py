"""Trainer: one model, several ranks, the averaged model back, as in EXO Gym.

fit starts the script that called it once more on every rank (node/exogym/script_rank.py). There the same call of fit
trains with the loop of node/train.py, and the rank ends. In the original process, fit waits for the ranks and returns
the averaged model. A script that torchrun or cluster.launch started is a rank from the beginning: its first fit
trains, and nothing after it runs.

On a cluster the sequence is: this module, on_cluster.py, `cluster.launch --fit` as a command (cluster/run/program.py,
then runner.py, staging.py, ranks.py); on each node node/rank.py, script_rank.py, the user's script, this module
again, train.py.
"""

import copy
import dataclasses
import itertools
import os
import sys
import tempfile
import traceback
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

try:
    import torch
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"{missing}: a script with node.exogym needs torch where it is started, too: "
        "pip install -e '.[local]'"
    ) from None

from node.base.options import OptionError
from node.dist.rank_env import read_rank_env
from node.exogym.fit_flags import FitFlags, launch_options
from node.exogym.fit_order import (
    RankDone,
    checkpoints_to_resume,
    read_fit_order,
    write_fit_order,
)
from node.exogym.local import new_run_folder, own_words, run_ranks
from node.exogym.on_cluster import launch_ranks
from node.exogym.same_data import are_alike, some_samples
from node.exogym.strategies import Chosen
from node.tasks.dataset_task import DatasetTask
from node.train import train
from node.training.config import parse_config
from node.training.shards import make_shard
from protocol.fit_order import INITIAL_MODEL, SAMPLES, EarlierFit, FitOrder
from protocol.places import MODEL
from protocol.rank import EXIT_USAGE
from protocol.rank_variables import FIT

if TYPE_CHECKING:
    from torch import nn

# The seed of torch's generator at the start, set by the script or not. Ranks start with the same one, and so draw the
# same split of the data.
SEED = torch.initial_seed()
# Calls of fit in this process, and their results: a rank must find its own call, and repeat the results before it.
_calls = itertools.count(1)
_ended: list[EarlierFit] = []


class Trainer:
    """A model that computes its own loss, and the data that it learns.

    Args:
        model: `model(batch)` is its loss, a tensor of one number.
        train_dataset: a torch Dataset, sharded over the ranks; or a function (rank, ranks, True) that returns this
            rank's own.
        val_dataset: a torch Dataset; or a function (rank, ranks, False). Rank 0 tests.

    Attributes:
        run_folder: the folder of the latest fit, with metrics, checkpoints and model.pt (not if it failed); None
            before.
    """

    def __init__(self, model: "nn.Module", train_dataset: Any, val_dataset: Any) -> None:  # noqa: ANN401
        self.model = model
        self.train_dataset = train_dataset
        self.val_dataset = val_dataset
        self.run_folder: Path | None = None

    def fit(
        self,
        *,
        backend: str,
        strategy: Chosen | str,
        num_nodes: int,
        max_steps: int | None = None,
        num_epochs: int = 1,
        batch_size: int = 16,
        minibatch_size: int | None = None,
        val_size: int | None = None,
        val_interval: int = 100,
        autocast: bool = False,
        checkpoint_interval: int | None = None,
        resume: Path | str | None = None,
        seed: int = 1,
        name: str | None = None,
        profile: str | None = None,
        topology: str | None = None,
        launch: Sequence[str] = (),
    ) -> "nn.Module":
        """Train on `num_nodes` ranks.

        Args:
            backend: "cluster" (containers, over SSH) or "local" (processes here).
            strategy: one of node.exogym, or the name of one of node.strategies.
            num_nodes: number of ranks, one per node.
            max_steps: steps of every rank; None: as many as num_epochs make.
            num_epochs: how often all samples are used, if max_steps is None; rounded up to whole steps.
            batch_size: samples of a rank's step.
            minibatch_size: samples of one backward pass, whose gradients add up to the batch's; divides batch_size.
                None: all.
            val_size: number of samples of val_dataset to test on, its first ones; None: all.
            val_interval: steps between two tests, 0 for none; there is always one at the end.
            autocast: whether the model computes in bf16.
            checkpoint_interval: steps between two checkpoints; None: no checkpoints.
            resume: the run_folder of a fit with the same arguments; this fit continues from its latest checkpoints,
                bit for bit. A fit on a cluster can resume one on a cluster, a local fit can resume either.
            seed: seed of sample order, dropout, and the draws of strategies.
            name: name of the cluster.
            profile: profile of its links.
            topology: topology of its links.
            launch: further arguments of `python -m cluster.launch`.

        Returns:
            A copy of the model with the parameters that the ranks agreed on, on the CPU; the given model stays as it
            was. In a rank, fit does not return.

        Raises:
            OptionError: something cannot be done; nothing has been started, or all has ended.
            RuntimeError: a rank or the cluster failed; names the run's folder, as run_folder does.
        """
        number = next(_calls)
        asked = FitFlags(
            strategy,
            num_nodes,
            max_steps,
            num_epochs,
            batch_size,
            minibatch_size,
            val_size,
            val_interval,
            autocast,
            checkpoint_interval,
            resume,
            seed,
        )
        order = read_fit_order(os.environ)
        if order and number < order.fit:
            return self._as_it_ended(order, number)
        if "RANK" in os.environ:
            if order:
                asked = dataclasses.replace(asked, resume=checkpoints_to_resume(order, backend))
            self._be_a_rank(asked, order)
        try:
            options = launch_options(backend, name, profile, topology, launch)
            folder = self._start(asked, backend, options)
        except BaseException as error:
            kind = "OptionError" if isinstance(error, OptionError) else "RuntimeError"
            _ended.append(EarlierFit(str(error), error=kind))
            raise
        _ended.append(EarlierFit(str(folder / MODEL)))
        return self._with(folder / MODEL)

    def _start(self, asked: FitFlags, backend: str, options: Sequence[str]) -> Path:
        """Start the ranks and wait for them; return the run's folder, which is `run_folder` also if they fail."""
        words = own_words()
        strategy, data = self._check(asked)
        with tempfile.TemporaryDirectory(prefix="gradwire-fit-") as place:
            resume = str(Path(asked.resume).resolve()) if asked.resume else ""
            order = FitOrder(len(_ended) + 1, SEED, data, list(_ended), resume)
            write_fit_order(order, Path(place))
            state = {name: value.cpu() for name, value in self.model.state_dict().items()}
            torch.save(state, Path(place, INITIAL_MODEL))
            if data:
                torch.save(self._samples(), Path(place, SAMPLES))
            if backend == "cluster":
                launched = launch_ranks(Path(place), words, asked.num_nodes, options)
                self.run_folder = launched.folder or self.run_folder
                return launched.run_folder()
            self.run_folder = folder = new_run_folder(strategy)
            run_ranks(Path(place), words, asked.num_nodes, folder)
            return folder

    def _as_it_ended(self, order: FitOrder, number: int) -> "nn.Module":
        """Return or raise what an earlier fit did in the original process, for the code before the next fit."""
        ended = order.ended[number - 1]
        if ended.error:
            raise (OptionError if ended.error == "OptionError" else RuntimeError)(ended.what)
        return self._with(Path(os.environ[FIT], ended.what))

    def _be_a_rank(self, asked: FitFlags, order: FitOrder | None) -> NoReturn:
        """Train, then end this process, even after an error: the script must not catch that here."""
        from torch.distributed.elastic.multiprocessing.errors import record

        try:
            record(self._train_here)(asked, order)  # errors: $TORCHELASTIC_ERROR_FILE
        except OptionError as error:
            print(f"fit: error: {error}", file=sys.stderr)
            raise RankDone(EXIT_USAGE) from None
        except Exception:
            traceback.print_exc()
            raise RankDone(1) from None
        raise RankDone(0)

    def _train_here(self, asked: FitFlags, order: FitOrder | None) -> None:
        ranks = read_rank_env(os.environ)
        if ranks.world_size != asked.num_nodes:
            raise OptionError(
                f"num_nodes={asked.num_nodes}, but there are {ranks.world_size} ranks"
            )
        task = self._task(ranks.rank, asked)
        config = parse_config(asked.flags(self._train_size()))
        if order:
            self._follow(order, task)
        config = dataclasses.replace(config, task=Path(sys.argv[0]).name, task_options={})
        train(config, task)

    def _follow(self, order: FitOrder, task: DatasetTask) -> None:
        """Start with the model of the process that called fit, on the same samples.

        Raises:
            OptionError: the script made another model or other data this time.
        """
        folder = Path(os.environ[FIT])
        if order.data and not self._has_data(order.data, folder, task):
            raise OptionError(
                "the script has made other datasets on this rank than where it was started: seed "
                "what draws them"
            )
        state = torch.load(folder / INITIAL_MODEL, weights_only=True)
        try:
            self.model.load_state_dict(state)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise OptionError(f"the script has made another model on this rank: {text}") from None

    def _has_data(self, data: str, folder: Path, task: DatasetTask) -> bool:
        """Return whether the datasets are those of the process that called fit."""
        if data != _digest(task):
            return False
        return are_alike(torch.load(folder / SAMPLES, weights_only=True), self._samples())

    def _samples(self) -> list[Any]:
        return some_samples([self.train_dataset, self.val_dataset])

    def _check(self, asked: FitFlags) -> tuple[str, str]:
        """Check once what would fail on every rank; return the strategy's name and a checksum of the data."""
        if _is_factory(self.train_dataset) or _is_factory(self.val_dataset):
            return asked.check(self._train_size()).strategy, ""
        task = self._task(0, asked)
        config = asked.check(self._train_size())
        make_shard(config, task.train_size, task.labels)
        return config.strategy, _digest(task)

    def _task(self, rank: int, asked: FitFlags) -> DatasetTask:
        """Return the task of a rank."""
        datasets = [
            data(rank, asked.num_nodes, training) if _is_factory(data) else data
            for data, training in ((self.train_dataset, True), (self.val_dataset, False))
        ]
        task = DatasetTask()
        task.take(
            "Trainer",
            (self.model, *datasets),
            val_size=asked.val_size,
            own_samples=_is_factory(self.train_dataset),
            own_held_out=_is_factory(self.val_dataset),
        )
        return task

    def _train_size(self) -> int | None:
        """Return the number of samples of all ranks together; None if each has its own."""
        return None if _is_factory(self.train_dataset) else len(self.train_dataset)

    def _with(self, path: Path) -> "nn.Module":
        """Return a copy of the model, on the CPU, with the state in a file."""
        model = copy.deepcopy(self.model).cpu()
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return model


def _is_factory(data: Any) -> bool:  # noqa: ANN401
    return callable(data) and not hasattr(data, "__getitem__")


def _digest(task: DatasetTask) -> str:
    return "" if task.own_samples else f"{zlib.crc32(task.choice()):08x}"
