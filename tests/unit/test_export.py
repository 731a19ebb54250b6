"""Exports of a run for other programs, read back by third-party parsers."""

import csv
import json
import os
import subprocess
import sys

import pytest
from books import line

from cluster.accounting.metrics_table import metric_rows
from cluster.base.paths import PROJECT_DIR
from cluster.export import main

STEPS = 3
WANDB = """\
import json, pathlib


class Run:
    def log(self, values, step):
        with pathlib.Path(self.dir, "logged").open("a") as file:
            file.write(json.dumps([step, values]) + "\\n")

    def finish(self):
        pathlib.Path(self.dir, "finished").touch()


def init(project, name, dir, config):
    run = Run()
    run.dir = dir
    run.log({"project": project, "name": name, "config": config}, 0)
    return run
"""


@pytest.fixture
def folder(tmp_path):
    """A run of two ranks: in each step rank 1 enters 0.5 s after rank 0; tested after the last step."""
    (tmp_path / "metrics").mkdir()
    (tmp_path / "run.yml").write_text("training: {strategy: ddp}\n")
    for rank in range(2):
        lines = [{"event": "start", "rank": rank, "time": 100.0}]
        books = []
        for step in range(1, STEPS + 1):
            at = 100.0 + step
            values = {"loss": 1 / step, "compute_s": 0.1, "comm_s": 0.8, "sent_bytes": 40}
            lines.append({"event": "step", "rank": rank, "step": step, "time": at} | values)
            came = at + 0.5 * rank
            books.append(
                line("all_reduce", {1 - rank: 40}, at=came, done_s=at + 0.8 - came, step=step)
            )
        came = {"env_steps": 64, "episodes": 2, "episode_return": 21.5, "episode_length": 21.5}
        lines.append({"event": "rollout", "rank": rank, "step": 2, "time": 102.0} | came)
        if rank == 0:
            tested = {"test_loss": 0.5, "test_accuracy": 0.75, "eval_s": 0.2}
            lines.append({"event": "eval", "rank": 0, "step": STEPS, "time": 104.0} | tested)
        write(tmp_path / "metrics" / f"node{rank + 1}.jsonl", lines)
        write(tmp_path / "metrics" / f"node{rank + 1}.collectives.jsonl", books)
    return tmp_path


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_where_a_rank_s_records_are_missing_waiting_is_unknown(folder):
    """Of three ranks, the last comes 4 s late; `waiting_s` is not 0 because one could not be fetched."""
    (folder / "hostfile").write_text("".join(f"node{n} slots=1\n" for n in (1, 2, 3)))
    for rank in range(3):
        came = 100.0 + 4 * (rank == 2)
        books = [line("all_reduce", {(rank - 1) % 3: 40}, at=came, done_s=105 - came)]
        lines = [{"event": "start", "rank": rank, "time": 99.0}]
        lines += [
            {"event": "step", "rank": rank, "step": step, "time": 105.0 + step, "sent_bytes": 0}
            for step in (1, 2)
        ]
        write(folder / "metrics" / f"node{rank + 1}.jsonl", lines)
        write(folder / "metrics" / f"node{rank + 1}.collectives.jsonl", books)
    assert waits(folder) == {"node1": [4.0, 0.0], "node2": [4.0, 0.0], "node3": [0.0, 0.0]}
    for kind in ("jsonl", "collectives.jsonl"):
        (folder / "metrics" / f"node2.{kind}").unlink()
    assert waits(folder) == {"node1": [None, 0.0], "node3": [None, 0.0]}  # none in the second step
    (folder / "metrics" / "node3.collectives.jsonl").unlink()
    assert waits(folder) == {"node1": [None, 0.0], "node3": [None, None]}


def waits(folder):
    found = {}
    for row in metric_rows(folder):
        found.setdefault(row["node"], []).append(row.get("waiting_s"))
    return found


def test_a_learner_says_itself_how_long_it_waited(folder):
    """A learner and its actor, which make no collectives; one of an earlier version did not say it."""
    for one in (folder / "metrics").glob("*.collectives.jsonl"):
        one.write_text("")
    steps = [
        {"event": "step", "rank": 0, "step": step, "time": 100.0 + step, "sent_bytes": 0} | said
        for step, said in ((1, {"comm_s": 0.9, "waiting_s": 0.75}), (2, {"comm_s": 0.9}))
    ]
    write(folder / "metrics" / "node1.jsonl", steps)
    assert waits(folder)["node1"] == [0.75, None]


def test_of_an_exchange_without_the_other_s_part_waiting_is_unknown(folder):
    for rank in range(2):
        books = [line("exchange", {1 - rank: 40}, sources=[1 - rank], at=101.0, step=1)]
        write(folder / "metrics" / f"node{rank + 1}.collectives.jsonl", books)
    assert waits(folder)["node1"] == [0.0, 0.0, 0.0]
    write(folder / "metrics" / "node2.collectives.jsonl", [])
    assert waits(folder)["node1"] == [None, 0.0, 0.0]


def test_csv_has_a_row_for_each_step_and_rank(folder, capsys):
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'metrics.csv'}\n"
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["rank"], row["node"]) for row in rows] == [
        (str(step), str(rank), f"node{rank + 1}") for step in (1, 2, 3) for rank in (0, 1)
    ]
    assert float(rows[2]["loss"]) == 0.5
    assert [float(row["waiting_s"]) for row in rows[:2]] == pytest.approx([0.5, 0.0])
    assert (rows[4]["sent_bytes"], rows[4]["sent_bytes_so_far"]) == ("40", "120")
    assert float(rows[4]["elapsed_s"]) == 3.0
    assert [row["episode_return"] for row in rows] == ["", "", "21.5", "21.5", "", ""]
    assert [row["test_accuracy"] for row in rows] == ["", "", "", "", "0.75", ""]


def test_a_killed_rank_s_last_line_is_left_out(folder, capsys):
    with (folder / "metrics" / "node2.jsonl").open("a") as file:
        file.write('{"event": "step", "rank": 1, "st')
    assert main([str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2 * STEPS


def test_event_files_are_read_back_by_tensorboard(folder):
    pytest.importorskip("tensorboard", reason="TensorBoard is in .venv alone (make test-unit)")
    for _ in range(2):  # the second replaces the first
        done = export(folder, "--tensorboard")
        assert done.returncode == 0, done.stderr
    assert not (folder / "metrics.csv").exists()
    read = (
        "import json, sys\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "board = EventAccumulator(sys.argv[1]).Reload()\n"
        "names = board.Tags()['scalars']\n"
        "print(json.dumps({n: [[e.step, e.wall_time, e.value] for e in board.Scalars(n)] for n in names}))"
    )
    argv = [sys.executable, "-W", "ignore", "-c", read, str(folder / "tensorboard" / "node1")]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    scalars = json.loads(said.splitlines()[-1])
    assert [point[:2] for point in scalars["loss"]] == [[1, 101.0], [2, 102.0], [3, 103.0]]
    assert [value for _, _, value in scalars["loss"]] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [value for _, _, value in scalars["waiting_s"]] == pytest.approx([0.5] * 3)
    assert scalars["test_accuracy"] == [[3, 103.0, 0.75]]
    assert {p.name for p in (folder / "tensorboard").iterdir()} == {"node1", "node2"}


def test_wandb_gets_the_metrics_of_a_run_whose_run_yml_is_damaged(folder, tmp_path):
    (tmp_path / "wandb.py").write_text(WANDB)
    (folder / "run.yml").write_bytes(b"a: [\xff")
    assert export(folder, "--wandb", "links", path=tmp_path).returncode == 0


def test_wandb_gets_all_ranks_in_one_run(folder, tmp_path):
    """With a stub of the three calls that are used; with W&B itself: docs/LOG.md."""
    (tmp_path / "wandb.py").write_text(WANDB)
    done = export(folder, "--wandb", "links", path=tmp_path)
    assert done.returncode == 0, done.stderr
    logged = [json.loads(text) for text in (folder / "logged").read_text().splitlines()]
    assert [step for step, _ in logged] == [0, 1, 2, 3]
    config = {"training": {"strategy": "ddp"}}
    assert logged[0][1] == {"project": "links", "name": folder.name, "config": config}
    assert logged[3][1]["node1/test_accuracy"] == 0.75
    assert logged[3][1]["node2/loss"] == pytest.approx(1 / 3)
    assert (folder / "finished").exists()


def test_what_is_missing_is_one_line(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    assert main([str(folder), "--csv", "--wandb", "links"]) == 2
    assert "error: wandb is not installed" in (said := capsys.readouterr().err)
    assert "pip install wandb" in said
    assert not (folder / "metrics.csv").exists()  # no partial export
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no metrics in" in capsys.readouterr().err


def export(folder, *flags, path=None):
    """Run the verb in its own process, as the libraries print warnings that are not ours."""
    environ = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    argv = [sys.executable, "-m", "cluster.export", str(folder), *flags]
    return subprocess.run(argv, cwd=PROJECT_DIR, env=environ, capture_output=True, text=True)
