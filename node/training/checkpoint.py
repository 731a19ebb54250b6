"""Checkpoints: a resumed run continues bit for bit as if it had not stopped.

Every rank writes and reads a file of its own, checkpoint-rank0-step40.pt: parameters, the states of optimiser and
strategy, random generators. A file is complete or absent, and the previous one is removed once all ranks have written
theirs: there is always one step that all ranks have. For another number of ranks, if the task allows that:
node/training/regroup.py.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from node.base.options import OptionError
from node.dist.comm import Comm
from node.strategies.base import Strategy
from node.tasks.base import Task
from node.tasks.draws import restore_draws, save_draws
from node.tasks.saved import Saved
from node.training.config import TrainConfig, without_folders
from node.training.regroup import regroup
from node.training.strategy_state import freeze, thaw
from protocol.checkpoint_name import CheckpointName, read_checkpoint_name
from protocol.places import MODEL

MOST = 64  # checkpoints of a rank that are considered, latest first
DATA = "data_digest"
OWN = "own_settings"


class Checkpoints:
    """The checkpoints of one rank of one run; `settings` is what `settings_of` returned."""

    def __init__(
        self,
        config: TrainConfig,
        settings: Mapping[str, object],
        task: Task,
        model: nn.Module,
        optimizer: Optimizer,
        comm: Comm,
        kept: dict[int, list[Tensor]],
    ) -> None:
        self._config = config
        self._settings = dict(settings)
        self._task = task
        self._model = model
        self._optimizer = optimizer
        self._comm = comm
        self._kept = kept  # for tests after training: node/training/evaluation.py
        self._device = next(model.parameters()).device
        self._unrecalled: Saved = {}  # what `resume` read for `recall`

    def save(self, step: int, strategy: Strategy) -> None:
        """Write a checkpoint after a step; return once all ranks have."""
        folder = self._config.run_dir
        assert folder is not None  # parse_config checks this
        state: Saved = {
            "settings": self._settings,
            "step": step,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "strategy": freeze(strategy),
            "kept": self._kept,
            "task": self._task.state(),
            **save_draws(self._device),
        }
        write_whole(folder / file_name(self._comm.rank, step), state)
        self._comm.all_reduce(torch.zeros(1, device=self._device), purpose="control")
        remove_others(folder, self._comm.rank, step)

    def resume(self) -> int:
        """Load the latest checkpoint that all ranks have; return its step.

        Called before the strategy is set up, because the strategy starts from the model; `recall` restores the
        strategy's own state.

        Raises:
            OptionError: there is no checkpoint, it is damaged, or it belongs to another run.
        """
        folder = self._config.resume
        assert folder is not None
        paths = find_fetched(folder, self._comm.rank)
        latest = self._latest_common(list(paths))
        state: Saved = read(paths[latest], self._device) if latest else {}
        if latest and state["settings"].get("ranks") == self._comm.world_size:
            require_same(paths[latest], state["settings"], self._settings)
            self._unrecalled = {  # only these: they stay in memory until setup
                "strategy": state["strategy"],
                "torch": state["torch"],
                "cuda": state["cuda"],
                "python": state["python"],
                "numpy": state.get("numpy"),
            }
        else:
            state = self._of_others(folder)
        step = state["step"]
        if step >= self._config.steps:
            raise OptionError(f"--steps: the checkpoint in {folder} is of step {step} already")
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._kept.update(state.get("kept", {}))
        self._task.load_state(state.get("task", {}))
        return step

    def recall(self, strategy: Strategy) -> None:
        """Restore the state of a strategy that is set up, and the random generators, from what `resume` read."""
        before, self._unrecalled = self._unrecalled, {}
        thaw(strategy, before.get("strategy", {}))
        if before:
            restore_draws(before, self._device)

    def _of_others(self, folder: Path) -> Saved:
        """Return this rank's part of what another number of ranks wrote.

        Raises:
            OptionError: the number of ranks is the same; a rank's file is missing, damaged or of another run; or the
                task cannot regroup.
        """
        found = find_all(folder)
        rank, size = self._comm.rank, self._comm.world_size
        ranks = self._ranks_of(found) if found else size
        if ranks == size and rank not in found:
            raise _missing(folder, rank)
        if ranks == size:
            raise OptionError(f"--resume {folder}: no step that all ranks have")
        if not self._task.regroups:
            raise OptionError(f"--resume: {folder} was made with ranks {ranks}, not {size}")
        paths = latest_of_all(folder, found, ranks)
        states = [read(path, self._device) for path in paths]
        _require_one_run(paths, states)
        require_same(paths[0], states[0]["settings"], self._settings, self._free())
        return regroup(states, self._task)

    def _ranks_of(self, found: dict[int, dict[int, Path]]) -> int:
        """Return the number of ranks that there were, from the latest checkpoint of the first rank found."""
        paths = found[min(found)]
        path = paths[max(paths)]
        ranks = read(path, self._device)["settings"].get("ranks")
        if not isinstance(ranks, int):
            raise OptionError(f"--resume: {path} does not say how many ranks there were")
        return ranks

    def _free(self) -> set[str]:
        """Return settings that may differ if the number of ranks does; one rank sends nothing, under any strategy."""
        alone = {"strategy", "strategy_options"} if self._comm.world_size == 1 else set()
        return {"rank", "ranks", *self._task.settled, *alone}

    def _latest_common(self, steps: list[int]) -> int:
        """Return the latest step that all ranks have; 0 if there is none."""
        latest = sorted(steps, reverse=True)[:MOST]
        mine = torch.tensor(latest + [0] * (MOST - len(latest)), device=self._device)
        everyone: list[list[int]] = self._comm.all_gather(mine, purpose="control").tolist()
        return max(set.intersection(*map(set, everyone)), default=0)


def find(folder: Path, rank: int) -> dict[int, Path]:
    """Return a rank's checkpoints in a folder, by step."""
    names = {path: read_checkpoint_name(path.name) for path in folder.glob("checkpoint-rank*.pt")}
    return {name.step: path for path, name in names.items() if name and name.rank == rank}


def find_fetched(folder: Path, rank: int) -> dict[int, Path]:
    """Return a rank's checkpoints by step, in a folder or in what a launcher fetched from nodes into it."""
    paths: dict[int, Path] = {}
    for place in (*folder.glob("files/node*"), folder):
        paths |= find(place, rank)
    return paths


def find_for_resume(folder: Path, rank: int) -> dict[int, Path]:
    """Return what `find_fetched` does.

    Raises:
        OptionError: there are none.
    """
    if paths := find_fetched(folder, rank):
        return paths
    raise _missing(folder, rank)


def find_all(folder: Path) -> dict[int, dict[int, Path]]:
    """Return all ranks' checkpoints in a folder, by rank and step."""
    paths = (*folder.glob("files/node*/checkpoint-*.pt"), *folder.glob("checkpoint-*.pt"))
    names = [read_checkpoint_name(path.name) for path in paths]
    found = {rank: find_fetched(folder, rank) for rank in {name.rank for name in names if name}}
    return {rank: paths for rank, paths in found.items() if paths}


def latest_of_all(folder: Path, found: dict[int, dict[int, Path]], ranks: int) -> list[Path]:
    """Return the checkpoints of the latest step that all `ranks` ranks have, by rank.

    Raises:
        OptionError: a rank has none, or there is no such step.
    """
    for rank in range(ranks):
        if rank not in found:
            raise _missing(folder, rank, f", and there were {ranks} ranks")
    common = set.intersection(*(set(found[rank]) for rank in range(ranks)))
    if not common:
        raise OptionError(f"--resume {folder}: no step that all {ranks} ranks have")
    return [found[rank][max(common)] for rank in range(ranks)]


def _missing(folder: Path, rank: int, why: str = "") -> OptionError:
    return OptionError(f"--resume {folder}: no checkpoint-rank{rank}-step….pt there{why}")


def write_whole(path: Path, state: Mapping[str, object]) -> None:
    """Write a file atomically: it is complete or absent, even after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def write_model(folder: Path, model: nn.Module) -> None:
    """Write the trained model as model.pt, on the CPU whatever device it was trained on."""
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    write_whole(folder / MODEL, state)


def read(path: Path, device: torch.device) -> Saved:
    """Read what `write_whole` wrote.

    Raises:
        OptionError: the file is damaged, or is not a checkpoint.
    """
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not verify checksums
            if wrong := archive.testzip():
                raise ValueError(f"{wrong} has another checksum")
        state: Saved = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # zip, pickle and torch raise their own types
        text = str(error).partition("\n")[0]
        raise OptionError(f"--resume: {path} is damaged, or no checkpoint: {text}") from None
    if not isinstance(state, dict) or "settings" not in state:
        raise OptionError(f"--resume: {path} is no checkpoint of node.train")
    return state


def settings_of(config: TrainConfig, task: Task, data: bytes) -> dict[str, object]:
    """Return the settings with which a run may go on: the decisive ones, the task's own, and a digest of shared data.

    Samples that are each rank's own are not compared: an environment may be in another version of gymnasium.
    """
    settings = config.decisive() | {OWN: dict(task.own_settings())}
    if task.own_samples:
        return settings
    return settings | {DATA: hashlib.sha256(data).hexdigest()[:16]}


def require_same(
    path: Path,
    before: Mapping[str, object],
    now: Mapping[str, object],
    free: Collection[str] = (),
) -> None:
    """Raise OptionError if a setting that decides the result has changed, except those in `free`."""
    before = without_folders(before)
    unknown = {DATA, OWN} - before.keys()  # in a checkpoint of an earlier version
    for key in sorted((before.keys() | now.keys()) - set(free) - unknown):
        if before.get(key) != now.get(key):
            was, what = json.dumps(before.get(key)), json.dumps(now.get(key))
            raise OptionError(f"--resume: {path} was made with {key} {was}, not {what}")


def _require_one_run(paths: list[Path], states: list[Saved]) -> None:
    """Raise OptionError if these checkpoints, ordered by rank, do not belong to one run."""
    first = states[0]["settings"]
    for rank, (path, state) in enumerate(zip(paths, states, strict=True)):
        if state["settings"] != {**first, "rank": rank}:
            raise OptionError(f"--resume: {path} is of another run than {paths[0]}")


def remove_others(folder: Path, rank: int, step: int) -> None:
    """Remove a rank's checkpoints of all steps but one."""
    for path in find(folder, rank).values():
        if path.name != file_name(rank, step):
            path.unlink()


def file_name(rank: int, step: int) -> str:
    """Return the name of a rank's checkpoint after a step."""
    return str(CheckpointName(rank, step))
