"""Checkpoints: a resumed run continues bit for bit as if it had not stopped.

Every rank writes a file of its own, checkpoint-rank0-step40.pt, and reads it again: parameters, the
states of optimiser and strategy, random generators. A file is whole or not there, and the one
before is removed when all ranks have written theirs: there is always one step that all have.
"""

import json
import os
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from node.base.options import OptionError
from node.dist.comm import Comm
from node.strategies.base import Strategy
from node.tasks.base import Task
from node.training.config import TrainConfig
from node.training.strategy_state import freeze, thaw

MOST = 64  # checkpoints of a rank that are looked at, from the latest on


class Checkpoints:
    """Of one rank of one run."""

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        model: nn.Module,
        optimizer: Optimizer,
        strategy: Strategy,
        comm: Comm,
        kept: dict[int, list[Tensor]],
    ) -> None:
        self._config = config
        self._task = task
        self._model = model
        self._optimizer = optimizer
        self._strategy = strategy
        self._comm = comm
        self._kept = kept  # for tests after the training: node/training/evaluation.py
        self._device = next(model.parameters()).device

    def save(self, step: int) -> None:
        """Write one after a step; returns when all ranks have."""
        folder = self._config.run_dir
        assert folder is not None  # or parse_config has refused
        state = {
            "settings": self._config.decisive(),
            "step": step,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "strategy": freeze(self._strategy),
            "kept": self._kept,
            "task": self._task.state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if self._device.type == "cuda" else None,
            "python": random.getstate(),
        }
        write_whole(folder / file_name(self._comm.rank, step), state)
        self._comm.all_reduce(torch.zeros(1, device=self._device), purpose="control")
        remove_others(folder, self._comm.rank, step)

    def resume(self) -> int:
        """Read the latest one that all ranks have; returns its step.

        Raises:
            OptionError: there is none, it is damaged, or of another run.
        """
        folder = self._config.resume
        assert folder is not None
        paths = find_for_resume(folder, self._comm.rank)
        path = paths[self._latest_common(list(paths))]
        state = read(path, self._device)
        require_same(path, state["settings"], self._config)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        thaw(self._strategy, state["strategy"])
        self._kept.update(state.get("kept", {}))
        self._task.load_state(state.get("task", {}))
        torch.set_rng_state(state["torch"].cpu())
        if state["cuda"] is not None and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"].cpu())
        random.setstate(state["python"])
        step: int = state["step"]
        if step >= self._config.steps:
            raise OptionError(f"--steps: {path} is of step {step} already")
        return step

    def _latest_common(self, steps: list[int]) -> int:
        latest = sorted(steps, reverse=True)[:MOST]
        mine = torch.tensor(latest + [0] * (MOST - len(latest)), device=self._device)
        everyone: list[list[int]] = self._comm.all_gather(mine, purpose="control").tolist()
        common: set[int] = set.intersection(*map(set, everyone)) - {0}
        if not common:
            raise OptionError(f"--resume {self._config.resume}: no step that all ranks have")
        return max(common)


def find(folder: Path, rank: int) -> dict[int, Path]:
    """A rank's checkpoints in a folder, by their step."""
    names = {
        path: re.fullmatch(rf"checkpoint-rank{rank}-step(\d+)\.pt", path.name)
        for path in folder.glob("checkpoint-rank*.pt")
    }
    return {int(match[1]): path for path, match in names.items() if match}


def find_for_resume(folder: Path, rank: int) -> dict[int, Path]:
    """A rank's checkpoints in a folder, or in what a launcher has fetched from its node into one.

    Raises:
        OptionError: there are none.
    """
    paths: dict[int, Path] = {}
    for place in (*folder.glob("files/node*"), folder):
        paths |= find(place, rank)
    if not paths:
        raise OptionError(f"--resume {folder}: no checkpoint-rank{rank}-step….pt there")
    return paths


def write_whole(path: Path, state: dict[str, Any]) -> None:
    """Write a file that is whole or not there, also if the power fails."""
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
    """model.pt: what was trained, whatever device it was trained on."""
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    write_whole(folder / "model.pt", state)


def read(path: Path, device: torch.device) -> dict[str, Any]:
    """What `write_whole` has written.

    Raises:
        OptionError: it is damaged, or no checkpoint.
    """
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            if wrong := archive.testzip():
                raise ValueError(f"{wrong} has another checksum")
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # zip, pickle and torch each have their own
        text = str(error).partition("\n")[0]
        raise OptionError(f"--resume: {path} is damaged, or no checkpoint: {text}") from None
    if not isinstance(state, dict) or "settings" not in state:
        raise OptionError(f"--resume: {path} is no checkpoint of node.train")
    return state


def require_same(path: Path, before: dict[str, Any], config: TrainConfig) -> None:
    """Raise OptionError where what decides the result is not what it was."""
    now = config.decisive()
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            was, what = json.dumps(before.get(key)), json.dumps(now.get(key))
            raise OptionError(f"--resume: {path} was made with {key} {was}, not {what}")


def remove_others(folder: Path, rank: int, step: int) -> None:
    """Remove a rank's checkpoints of all steps but one."""
    for path in find(folder, rank).values():
        if path.name != file_name(rank, step):
            path.unlink()


def file_name(rank: int, step: int) -> str:
    """Of a rank's checkpoint after a step."""
    return f"checkpoint-rank{rank}-step{step}.pt"
