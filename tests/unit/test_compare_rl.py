"""The example with the long reinforcement-learning measurements: what it runs, and its tables."""

import csv
import json
import sys

import pytest

from cluster.base.paths import PROJECT_DIR
from node.training.config import parse_config

sys.path.insert(0, str(PROJECT_DIR / "examples"))
import compare_rl as compare  # noqa: E402
import kept_runs  # noqa: E402
import rl_studies  # noqa: E402

SECONDS = {"total": 50.0, "startup": 5.0, "eval": 5.0, "compute": 10.0}
SUMMARY = {
    "status": "done",
    "folder": "/runs/one",
    "exit_codes": {"node1": 0, "node2": 0, "node3": 0},
    "seconds": {"node1": SECONDS},
    "bytes": {"total": 12_300_000, "tests": 300_000},
    "wall_s": 61.04,
    "environments": {"steps": 480, "steps_s": 9.6},
    "experience": None,
}
EXPERIENCE = {
    "env_steps": 1600,
    "rejected_share": 0.25,
    "mean_steps": 20.0,
    "mean_steps_kept": 15.0,
    "staleness_updates": {"mean": 5.0, "median": 4.0, "p95": 9.0, "max": 12.0},
    "staleness_s": {},
    "changed": 0.5,
    "broadcast": {"seconds": 2.0, "bound_s": 1.6, "ratio": 1.25, "timed": 4},
    "actors": {
        "node2": {
            "weights_age_s": 2.0,
            "predicted_weights_age_s": 1.0,
            "predicted_over_measured": 0.5,
        },
        "node3": {
            "weights_age_s": 2.0,
            "predicted_weights_age_s": 2.2,
            "predicted_over_measured": 1.1,
        },
        "node4": {"predicted_weights_age_s": None, "predicted_over_measured": None},
    },
}
LABEL = {"profile": "mobile", "env": "CartPole-v1", "seed": 0}


def steps(returns, ranks=(0, 1)):
    """Metrics of 1 s and 1 MB per step and rank; rank 0 tests for 3 s after every second step."""
    rows = []
    for step in range(1, 2 * len(returns) + 1):
        for rank in ranks:
            row = {"step": step, "rank": rank, "elapsed_s": float(step)}
            row["sent_bytes_so_far"] = 10**6 * step
            if rank == 0 and step % 2 == 0:
                row |= {"test_return": returns[step // 2 - 1], "eval_s": 3.0}
            rows.append(row)
    return rows


def row(returns=(20.0, 480.0, 470.0), label=LABEL, **summary):
    points = compare.curve(label, steps(returns))
    return compare.make_row(label, SUMMARY | summary, points)


def test_a_curve_has_seconds_and_bytes_until_each_test():
    assert compare.curve(LABEL, steps([20.0, 480.0])) == [
        LABEL | {"step": 2, "seconds": 2.0, "bytes": 4 * 10**6, "return": 20.0},
        LABEL | {"step": 4, "seconds": 4.0, "bytes": 8 * 10**6, "return": 480.0},
    ]
    assert compare.curve(LABEL, []) == []


def test_a_learners_own_tests_take_no_time_of_its_training():
    """It tests between updates; the bytes that its actors sent are not known by step."""
    rows = steps([20.0, 480.0], ranks=(0,))
    for one in rows[2:]:
        one["elapsed_s"] += 3.0
    points = compare.curve(LABEL, rows)
    assert [(point["seconds"], point["bytes"]) for point in points] == [(2.0, None), (4.0, None)]


def test_a_row_says_how_it_ended():
    found = row()
    assert (found["return_at_end"], found["best_return"]) == (470.0, 480.0)
    assert (found["loop_s"], found["wall_s"], found["env_steps"]) == (40.0, 61.0, 480)
    assert found["carried_mbyte"] == 12.0  # without the bytes of tests


def test_actors_are_told_by_their_mean_and_by_the_worst_of_them():
    found = row(experience=EXPERIENCE, environments=None)
    assert found["ratios"] == "0.5 1.1"
    assert (found["ratio"], found["worst"]) == (0.8, 0.5)
    assert (found["predicted_age_s"], found["measured_age_s"]) == (1.6, 2.0)
    assert (found["rejected_share"], found["kept_over_all_steps"]) == (0.25, 0.75)
    assert (found["stale_updates_p95"], found["stale_median_s"]) == (9.0, None)
    assert found["env_steps"] == 1600
    assert (found["broadcast_s"], found["bound_s"], found["changed"]) == (2.0, 1.6, 0.5)
    without = row(experience=EXPERIENCE | {"broadcast": None}, environments=None)
    assert without["broadcast_s"] is None


def test_worst_is_farthest_from_1_on_either_side():
    assert compare.worst([0.9, 1.3, 0.8]) == 1.3
    assert compare.worst([0.7, 1.3, None]) == 0.7
    assert compare.worst([]) is None


def test_a_run_that_failed_is_seen_in_its_line_and_in_no_mean(capsys):
    failed = row([300.0], LABEL | {"seed": 1}, status="failed", seconds={})
    assert (failed["return_at_end"], failed["loop_s"]) == (None, None)
    study = compare.STUDIES["seeds"]
    line = compare.table_lines(study, [row(), failed])[-1]
    assert (line["status"], line["runs"]) == ("failed", "1/2")
    assert line["return_at_end"] == 470.0
    compare.print_lines(study, [failed])
    assert "failed" in capsys.readouterr().out


def test_seeds_have_a_line_each_and_one_for_all():
    labels = [{"profile": "wan", "env": "CartPole-v1", "seed": seed} for seed in (1, 2)]
    rows = [row([value], label) for value, label in zip((500.0, 490.0), labels, strict=True)]
    lines = compare.table_lines(compare.STUDIES["seeds"], rows)
    assert [(line["seed"], line["return_at_end"]) for line in lines] == [
        *((1, 500.0), (2, 490.0), ("all", 495.0))
    ]


@pytest.mark.parametrize("study", compare.STUDIES)
@pytest.mark.parametrize("more", [[], ["--quick"]])
def test_what_is_asked_for_is_what_node_train_knows(study, more):
    args = compare.parse([study, *more])
    names = []
    for case in compare.STUDIES[study].cases(args, args.profiles[0]):
        ranks = {"RANK": "0", "WORLD_SIZE": str(args.nodes), "MASTER_ADDR": "a"}
        config = parse_config(case.words, ranks | {"MASTER_PORT": "29500"})
        assert config.seed == case.label["seed"]
        assert not args.steps or config.steps == args.steps
        names.append(case.name)
    assert len(set(names)) == len(names) > 1


def test_every_rule_is_told_apart_by_options():
    names = [*("none", "vtrace", "reject-2", "reject-8", "pace-2", "pace-8")]
    rules = rl_studies.rules([2, 8])
    assert list(rules) == names
    assert len({json.dumps(options) for options in rules.values()}) == len(names)
    assert rules["pace-8"] == {"correction": "none", "max_staleness": 8, "when_stale": "pace"}


def configs(study, *words):
    """Return the configuration of each run of a study, with its label."""
    args = compare.parse([study, *words])
    environ = {"RANK": "0", "WORLD_SIZE": str(args.nodes), "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    cases = compare.STUDIES[study].cases(args, args.profiles[0])
    return [(case.label, parse_config(case.words, environ)) for case in cases]


def test_rules_are_compared_at_a_decaying_rate_with_little_in_flight():
    """Two actors' windows and the queue add (2 x 2 + 4) / 2 updates to S; with a window of 16 it would be 18."""
    found = configs("corrections")
    assert {label["rule"] for label, _ in found} == set(rl_studies.rules([2, 8]))
    for _, config in found:
        assert (config.lr_schedule, config.final_lr) == ("linear", 0.0)
        assert config.task_options["window"] == 2
    (_, config), *_ = configs("corrections", "--task-set", "window=5")
    assert config.task_options["window"] == 5


def test_agents_trained_with_and_without_losses_are_tested_at_five_losses():
    found = configs("comm")
    trained = [(label["seed"], config.task_options["comm_loss"]) for label, config in found]
    assert sorted(trained) == [(seed, loss) for seed in (0, 1, 2) for loss in (0.0, 0.5)]
    for _, config in found:
        assert config.task_options["eval_comm_loss"] == 0.0
        assert config.task_options["eval_comm_loss_also"] == "0.25,0.5,0.75,1"
    label = {"profile": "mobile", "comm_loss": 0.5}
    tested = {"test_success": 0.9, "test_success_at_0.25": 0.8, "test_success_at_1": 0.3}
    rows = [row(label=label | {"seed": seed}, tested=tested) for seed in (0, 1)]
    (line,) = compare.table_lines(compare.STUDIES["comm"], rows)
    assert (line["success_at_0"], line["success_at_0.25"], line["success_at_1"]) == (0.9, 0.8, 0.3)
    assert line["success_at_0.5"] is None


def test_what_is_known_is_not_run_again_and_needs_no_cluster(monkeypatch, tmp_path, capsys):
    ran, folder = [], tmp_path / "run"
    folder.mkdir()
    words = ["seeds", "--quick", "--out", str(tmp_path / "out")]

    class Nodes:
        def __init__(self, *_, **__):
            ran.append("up")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            ran.append("down")

    def run(cluster, words, nodes, *, verify):
        ran.append(words[words.index("--seed") + 1])
        return folder, SUMMARY | {"folder": str(folder)}

    monkeypatch.setattr(compare, "Cluster", Nodes)
    monkeypatch.setattr(compare, "hear_signals", lambda: None)
    monkeypatch.setattr(kept_runs, "run", run)
    monkeypatch.setattr("cluster.sweeps.figures.metric_rows", lambda folder: steps([480.0]))
    assert compare.main(words) == 0
    assert ran == ["up", "1", "2", "down"]
    first = capsys.readouterr().out
    assert compare.main(words) == 0
    assert capsys.readouterr().out == first
    assert len(ran) == 4
    assert compare.main([*words, "--seeds", "1", "3"]) == 0
    assert ran[4:] == ["up", "3", "down"]
    assert compare.main([*words, "--steps", "60"]) == 0
    assert ran[7:] == ["up", "1", "2", "down"]


def test_a_run_that_failed_ends_it_with_1_and_is_tried_again(monkeypatch, tmp_path):
    def run(cluster, words, nodes, *, verify):
        ran.append(words)
        return tmp_path, SUMMARY | {"folder": str(tmp_path), "status": "failed", "seconds": {}}

    ran = []
    monkeypatch.setattr(compare.Cluster, "__enter__", lambda self: self)
    monkeypatch.setattr(compare, "hear_signals", lambda: None)
    monkeypatch.setattr(kept_runs, "run", run)
    for _ in range(2):
        assert compare.main(["seeds", "--quick", "--out", str(tmp_path)]) == 1
    assert len(ran) == 4


def test_tables_are_written(tmp_path):
    label = {"profile": "mobile", "pull_every": 100, "rule": "reject-2", "seed": 0}
    found = compare.Found([row(label=label, experience=EXPERIENCE)])
    found.points = [{"study": "corrections"} | one for one in compare.curve(label, steps([9.0]))]
    compare.write(tmp_path, "corrections", found)
    (line,) = read(tmp_path / "table.csv")
    assert (line["rule"], line["rejected_share"], line["status"]) == ("reject-2", "0.25", "done")
    (line,) = read(tmp_path / "runs.csv")
    assert (line["seed"], line["pull_every"], line["run"]) == ("0", "100", "one")
    (line,) = read(tmp_path / "curves.csv")
    assert (line["study"], line["step"], line["return"]) == ("corrections", "2", "9.0")
    assert json.loads((tmp_path / "table.json").read_text())[0]["stale_updates_median"] == 4.0


def test_a_heading_has_its_unit_apart():
    names = ("loop_s", "carried_mbyte", "stale_updates_p95", "ratios")
    assert [compare.heading(name) for name in names] == [
        *("LOOP s", "CARRIED MB", "STALE UPDATES P95", "RATIOS")
    ]


def test_a_study_has_its_own_flags_alone(capsys):
    for words in (["seeds", "--max-staleness", "2"], ["corrections", "--max-staleness", "0"]):
        with pytest.raises(SystemExit):
            compare.parse(words)
        assert "--max-staleness" in capsys.readouterr().err


def test_pictures_without_matplotlib_are_refused_before_anything_starts(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(compare.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(compare, "hear_signals", lambda: None)
    assert compare.main(["seeds", "--pictures", "--out", str(tmp_path)]) == 2
    assert "try: pip install matplotlib" in capsys.readouterr().err


def read(path):
    return list(csv.DictReader(path.read_text().splitlines()))
