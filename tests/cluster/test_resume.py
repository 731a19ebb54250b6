"""A run resumes from the checkpoints of another, which are fetched from the nodes and sent back to them."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_run_goes_on_from_the_checkpoints_of_another(unshaped, tmp_path):
    """Also with a user's own task, whose folder is sent along."""
    (tmp_path / "mine.py").write_text(TASK)
    flags = ("--task", f"{tmp_path}/mine.py:make_task", "--batch-size", "8", "--set", "H=3")
    flags = (*flags, "--optimizer", "sgd", "--momentum", "0.9", "--lr", "0.01")
    first = unshaped.json("launch", *flags, "--steps", "8", "--checkpoint-every", "5")
    folder = Path(first["folder"])
    names = {str(path.relative_to(folder)) for path in folder.glob("files/*/*")}
    assert names == {f"files/node{r + 1}/checkpoint-rank{r}-step5.pt" for r in range(3)}
    second = unshaped.json("launch", *flags, "--steps", "8", "--resume", folder)
    assert second["final_loss"] == first["final_loss"]
    assert second["tested"] == first["tested"]
    whole, rest = (steps(Path(run["folder"])) for run in (first, second))
    assert rest == {step: whole[step] for step in (6, 7, 8)}


def steps(folder):
    """Return the losses of the last rank, by step."""
    lines = (folder / "metrics/node3.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


TASK = """
import torch
from torch.utils.data import TensorDataset


class Line(torch.nn.Linear):
    def forward(self, batch):
        x, y = batch
        return ((super().forward(x) - y) ** 2).mean()


def make_task(width: int = 16):
    x = torch.randn(400, width)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return Line(width, 1), data, data
"""
