"""Short runs of examples/compare_rl.py on real nodes."""

import csv
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S, hear_interrupts

REINFORCEMENT = PROJECT_DIR / "examples" / "compare_rl.py"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("study", "column", "lines"),
    [
        ("staleness", "measured_age_s", 2),
        ("corrections", "return_at_end", 4),
        ("broadcast", "broadcast_s", 3),
        ("deltas", "changed", 2),
        ("seeds", "return_at_end", 3),
    ],
)
def test_each_study_of_reinforcement_learning_has_its_table(
    make_cluster, tmp_path, study, column, lines
):
    cluster = make_cluster("compare")
    argv = [sys.executable, REINFORCEMENT, study, "--quick", "--name", cluster.name]
    running = subprocess.Popen(
        [*map(str, argv), "--out", tmp_path],
        cwd=PROJECT_DIR,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_interrupts,
    )
    table = rows(running, tmp_path)
    assert [row["status"] for row in table] == ["done"] * lines
    assert all(float(row[column]) > 0 for row in table)
    assert cluster.things() == []


def rows(running, folder):
    """Wait for the example to end, and return the rows of its table."""
    _, said = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 0, said
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
