"""The example that compares strategies: when a target was reached, and what is run again."""

import csv
import json
import sys

import pytest

from cluster.base.console import Console
from cluster.base.errors import RunFailed
from cluster.base.paths import PROJECT_DIR

sys.path.insert(0, str(PROJECT_DIR / "examples"))
import compare_strategies as compare  # noqa: E402
import kept_runs  # noqa: E402

SECONDS = {"total": 50.0, "startup": 5.0, "eval": 5.0, "compute": 10.0, "transfer": 20.0}
SUMMARY = {
    "status": "done",
    "folder": "/runs/one",
    "exit_codes": {"node1": 0, "node2": 0},
    "seconds": {"node1": SECONDS | {"waiting": 4.0}, "node2": SECONDS | {"waiting": 9.0}},
    "bytes": {"total": 12_300_000},
}
TARGET = compare.TARGETS["fashion-mnist"]


def steps(accuracies):
    """Two ranks, a second a step, 1 MB each; what is tested is of every second step."""
    rows = []
    for step in range(1, 2 * len(accuracies) + 1):
        for rank in (0, 1):
            row = {"step": step, "rank": rank, "elapsed_s": float(step)}
            rows.append(row | {"sent_bytes_so_far": 10**6 * step})
        if step % 2 == 0:
            rows[-2] |= {"test_accuracy": accuracies[step // 2 - 1], "eval_s": 3.0}
    return rows


def row(accuracies, summary=SUMMARY):
    return compare.make_row("fashion-mnist", "ddp", TARGET, summary, steps(accuracies), 300_000)


def test_a_target_is_reached_at_the_step_of_which_a_test_first_says_so():
    found = row([0.5, 0.86, 0.84])
    assert (found["reached_step"], found["reached_s"]) == (4, 4.0)
    assert found["reached_mbyte"] == 8.0
    assert (found["best"], found["steps"]) == (0.86, 6)


def test_what_never_got_there_says_how_far_it_came():
    found = row([0.5, 0.7])
    assert found["reached_s"] is found["reached_step"] is found["reached_mbyte"] is None
    assert found["best"] == 0.7


def test_what_tests_sent_is_told_from_what_training_did(tmp_path):
    """A test's average of 1 MB between two ranks, each of which sends it once, and a step's of 2 MB."""
    (tmp_path / "metrics").mkdir()
    for rank in (0, 1):
        sums = [
            {"kind": "all_reduce", "purpose": purpose, "bytes": size, "count": 1, "waited_s": 0.1}
            | {"to": {str(1 - rank): {"bytes": size, "messages": 4}}}
            for purpose, size in (("eval", 10**6), ("train", 2 * 10**6))
        ]
        line = json.dumps({"event": "end", "rank": rank, "time": 1.5, "collectives": sums})
        (tmp_path / "metrics" / f"node{rank + 1}.jsonl").write_text(line + "\n")
    assert 2e6 < compare.tests_bytes(tmp_path, SUMMARY) < 1.1 * 2e6
    assert compare.tests_bytes(tmp_path, {"exit_codes": {"node7": 1}}) == 0


def test_tests_are_made_after_the_training():
    """While rank 0 tests, others would compute for nothing, and what is on its way arrive for nothing."""
    for name in compare.STRATEGIES:
        words = compare.settings("language", name, compare.parse([]))["words"]
        assert words[words.index("--eval") + 1] == "after"


def test_a_loss_is_to_be_low():
    target = compare.TARGETS["language"]
    assert target.is_reached(target.value - 0.1) and not target.is_reached(target.value + 0.1)
    assert target.best([3.0, 2.0, 2.5]) == 2.0


def test_communication_is_a_share_of_rank_0s_training():
    found = row([0.5])
    assert found["loop_s"] == 40.0
    assert found["communication_share"] == 0.6
    assert found["carried_mbyte"] == 12.0  # without what tests sent


def test_a_run_that_failed_at_once_has_a_row(capsys):
    summary = SUMMARY | {"status": "failed", "seconds": {}}
    found = compare.make_row("language", "ddp", compare.TARGETS["language"], summary, [], 0)
    assert (found["status"], found["best"], found["loop_s"]) == ("failed", None, None)
    compare.print_rows([found])
    assert "failed" in capsys.readouterr().out


def test_who_is_there_first_stands_first(capsys, tmp_path):
    slow, fast, never = (row(values) | {"strategy": name} for name, values in RUNS.items())
    compare.print_rows([never, slow, fast])
    names = [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert names == ["fast", "slow", "never"]
    kept_runs.write_table(tmp_path, "table", [slow, never], compare.COLUMNS)
    assert json.loads((tmp_path / "table.json").read_text())[1]["reached_s"] is None
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [line["reached_s"] for line in csv.DictReader(file)] == ["4.0", ""]


RUNS = {"slow": [0.1, 0.9], "fast": [0.9, 0.9], "never": [0.1, 0.2]}


def test_what_is_there_is_not_run_again(monkeypatch, tmp_path):
    ran = []

    def run(cluster, words, nodes, *, verify):
        ran.append(words)
        return tmp_path, SUMMARY | {"folder": str(tmp_path)}

    monkeypatch.setattr(kept_runs, "run", run)
    monkeypatch.setattr(kept_runs, "metric_rows", lambda folder: steps([0.9]))
    args = compare.parse(["--out", str(tmp_path)])
    first, second = (compare.known_or_run(None, "language", "diloco", args) for _ in range(2))
    assert first == second
    assert len(ran) == 1
    assert {"--task", "language", "--strategy", "diloco", "H=20"} <= set(ran[0])
    compare.known_or_run(
        None, "language", "diloco", compare.parse(["--out", str(tmp_path), "--steps", "7"])
    )
    assert len(ran) == 2


def test_a_run_whose_ranks_are_done_and_that_failed_all_the_same_has_failed(tmp_path):
    """Its links were lost, or results stayed on their node: it is tried again the next time."""

    class Lost:
        console = Console()

        def launch(self, program, *, verify):
            raise RunFailed("lost links", document=SUMMARY)

    words = ["--strategy", "ddp", "--steps", "4"]
    asked = kept_runs.settings(words, 2, "wan")
    _, summary = kept_runs.known_or_run(Lost, asked, tmp_path, "one", verify=True)
    assert summary["status"] == "failed"
    assert list(tmp_path.iterdir()) == []


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
