"""examples/compare_strategies.py and compare_rl.py on real nodes, in short."""

import csv
import signal
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S, eventually, hear_interrupts

EXAMPLE = PROJECT_DIR / "examples" / "compare_strategies.py"
REINFORCEMENT = PROJECT_DIR / "examples" / "compare_rl.py"
SHORT = ["--tasks", "fashion-mnist", "--strategies", "fedavg", "--nodes", "2", "--profile", "wan"]
SHORT += ["--steps", "4", "--H", "2", "--eval-every", "2", "--no-verify"]


@pytest.fixture
def compare(make_cluster, tmp_path):
    """A function that starts the example on a cluster of its own; the cluster is its attribute."""
    cluster = make_cluster("compare")
    argv = [sys.executable, EXAMPLE, "--name", cluster.name, "--out", tmp_path, *SHORT]

    def start(*words):
        return subprocess.Popen(
            [*map(str, argv), *words],
            cwd=PROJECT_DIR,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=hear_interrupts,
        )

    start.cluster = cluster
    return start


@pytest.mark.slow
def test_strategies_are_compared_and_what_is_known_is_not_run_again(compare, tmp_path):
    first = rows(compare("--target", "fashion-mnist=0.99"), tmp_path)
    assert [(row["strategy"], row["status"], row["steps"]) for row in first] == [
        ("fedavg", "done", "4")
    ]
    assert first[0]["reached_s"] == ""
    # Two exchanges of 1.2 M parameters of 4 bytes between two ranks, each of which sends them once.
    assert 2 * 2 * 4.8 < float(first[0]["carried_mbyte"]) < 1.1 * 2 * 2 * 4.8
    assert compare.cluster.things() == []
    again = rows(compare("--target", "fashion-mnist=0.01"), tmp_path)
    assert again[0]["run"] == first[0]["run"]
    assert again[0]["reached_step"] == "2"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_is_stopped_takes_its_nodes_down(compare, number):
    running = compare()
    eventually(lambda: len(compare.cluster.things()) >= 4)
    running.send_signal(number)
    _, said = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 130, said
    assert "Traceback" not in said
    assert compare.cluster.things() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "column", "lines"),
    [
        ("ppo", "return_at_end", 2),
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
    """The table that it writes."""
    _, said = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 0, said
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
