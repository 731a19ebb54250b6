"""The example that compares strategies: when a target was reached, and what is run again."""

import csv
import json
import sys

import pytest

from cluster.spec import PROJECT_DIR

sys.path.insert(0, str(PROJECT_DIR / "examples"))
import compare_strategies as compare  # noqa: E402

SECONDS = {"total": 50.0, "startup": 5.0, "eval": 5.0, "compute": 10.0, "transfer": 20.0}
SUMMARY = {
    "status": "done",
    "folder": "/runs/one",
    "seconds": {"node1": SECONDS | {"waiting": 4.0}, "node2": SECONDS | {"waiting": 9.0}},
    "bytes": {"total": 12_300_000},
}
TARGET = compare.TARGETS["fashion-mnist"]


def steps(accuracies):
    """Two ranks, a second a step, 1 MB each; rank 0 tests after every second step, which takes 3 s."""
    rows = []
    for step in range(1, 2 * len(accuracies) + 1):
        at = step + 3.0 * ((step - 1) // 2)
        for rank in (0, 1):
            rows.append(
                {"step": step, "rank": rank, "elapsed_s": at, "sent_bytes_so_far": 10**6 * step}
            )
        if step % 2 == 0:
            rows[-2] |= {"test_accuracy": accuracies[step // 2 - 1], "eval_s": 3.0}
    return rows


def row(accuracies, summary=SUMMARY):
    return compare.make_row("fashion-mnist", "ddp", TARGET, summary, steps(accuracies))


def test_a_target_is_reached_when_a_test_first_says_so_and_tests_take_no_time():
    found = row([0.5, 0.86, 0.84])
    assert (found["reached_step"], found["reached_s"]) == (4, 4.0)
    assert found["reached_mbyte"] == 8.0
    assert (found["best"], found["steps"]) == (0.86, 6)


def test_what_never_got_there_says_how_far_it_came():
    found = row([0.5, 0.7])
    assert found["reached_s"] is found["reached_step"] is found["reached_mbyte"] is None
    assert found["best"] == 0.7


def test_a_loss_is_to_be_low():
    target = compare.TARGETS["language"]
    assert target.is_reached(target.value - 0.1) and not target.is_reached(target.value + 0.1)
    assert target.best([3.0, 2.0, 2.5]) == 2.0


def test_communication_is_a_share_of_rank_0s_training():
    found = row([0.5])
    assert found["loop_s"] == 40.0
    assert found["communication_share"] == 0.6
    assert found["carried_mbyte"] == 12.3


def test_a_run_that_failed_at_once_has_a_row(capsys):
    summary = SUMMARY | {"status": "failed", "seconds": {}}
    found = compare.make_row("language", "ddp", compare.TARGETS["language"], summary, [])
    assert (found["status"], found["best"], found["loop_s"]) == ("failed", None, None)
    compare.print_rows([found])
    assert "failed" in capsys.readouterr().out


def test_who_is_there_first_stands_first(capsys, tmp_path):
    slow, fast, never = (row(values) | {"strategy": name} for name, values in RUNS.items())
    compare.print_rows([never, slow, fast])
    names = [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert names == ["fast", "slow", "never"]
    compare.write_table(tmp_path, [slow, never])
    assert json.loads((tmp_path / "table.json").read_text())[1]["reached_s"] is None
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [line["reached_s"] for line in csv.DictReader(file)] == ["4.0", ""]


RUNS = {"slow": [0.1, 0.9], "fast": [0.9, 0.9], "never": [0.1, 0.2]}


def test_what_is_there_is_not_run_again(monkeypatch, tmp_path):
    ran = []

    def run(cluster, words, *, verify):
        ran.append(words)
        return tmp_path, SUMMARY | {"folder": str(tmp_path)}

    monkeypatch.setattr(compare, "run", run)
    monkeypatch.setattr(compare, "metric_rows", lambda folder: steps([0.9]))
    args = compare.parse(["--out", str(tmp_path)])
    first, second = (compare.known_or_run(None, "language", "diloco", args) for _ in range(2))
    assert first == second
    assert len(ran) == 1
    assert {"--task", "language", "--strategy", "diloco", "H=20"} <= set(ran[0])
    compare.known_or_run(
        None, "language", "diloco", compare.parse(["--out", str(tmp_path), "--steps", "7"])
    )
    assert len(ran) == 2


def test_quick_is_short_and_flags_still_count():
    args = compare.parse(["--quick", "--steps", "5"])
    assert (args.nodes, args.steps, args.eval_every) == (2, 5, 4)
    assert "H=4" in compare.settings("fashion-mnist", "fedavg", args)["words"]
    assert compare.parse([]).strategies == list(compare.STRATEGIES)


@pytest.mark.parametrize("word", ["mnist=0.5", "language", "language=low"])
def test_a_target_that_is_none_is_refused(word, capsys):
    with pytest.raises(SystemExit):
        compare.parse(["--target", word])
    assert "--target TASK=VALUE" in capsys.readouterr().err


def test_every_strategy_is_compared():
    from node.strategies import STRATEGIES

    assert set(compare.STRATEGIES) == set(STRATEGIES)
