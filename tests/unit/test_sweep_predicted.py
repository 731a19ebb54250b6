"""What a sweep's runs would have come to on the links of other profiles."""

import json

import pytest
from past_runs import write_run

from cluster.links.profiles import load_profile
from cluster.sweeps.cells import Cell, Problem
from cluster.sweeps.figures import Figures, Target
from cluster.sweeps.predicted import predicted_outcomes
from cluster.sweeps.ranking import Outcome, rank

TARGET = Target("test_accuracy", 0.8)


def outcome(**figures):
    """A run of five all-reduces over mobile, which took 50 s of training; it waited for half of them."""
    known = {"target": TARGET, "loop_s": 50.0, "wall_s": 62.0, "communication_share": 0.5}
    cell = Cell(Problem("", "mobile", "full", "auto"), "fedavg", 1, 1, ())
    return Outcome(cell, Figures(**known | figures))


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


def predicted(folder, *profiles, **figures):
    found, reasons = predicted_outcomes(
        outcome(**figures), folder, [load_profile(name) for name in profiles]
    )
    assert reasons == []
    return found


@pytest.fixture
def with_steps(folder):
    """The same, with the steps of rank 0: one after each all-reduce, the last one ten seconds before a test's."""
    steps = [{"event": "step", "rank": 0, "time": 111.0 + 10 * n, "step": n + 1} for n in range(4)]
    with (folder / "metrics" / "node1.jsonl").open("a") as metrics:
        metrics.writelines(json.dumps(step | {"sent_bytes": 1}) + "\n" for step in steps)
    return folder


def test_on_slow_links_all_of_it_takes_longer_and_ranks_wait_for_more_of_it(with_steps):
    (there,) = predicted(with_steps, "poor", reached_s=20.0, reached_step=2)
    longer_s = there.figures.loop_s - 50
    assert longer_s > 10
    assert there.figures.communication_share == pytest.approx(
        (25 + longer_s) / (50 + longer_s), abs=1e-3
    )
    # Training is four of the run's five equal all-reduces, and the target was reached after two.
    assert there.figures.wall_s == pytest.approx(62 + longer_s * 5 / 4, rel=0.01)
    assert there.figures.reached_s == pytest.approx(20 + longer_s * 2 / 4, rel=0.01)
    assert there.cell.problem.profile == "poor (predicted, from mobile)"


def test_without_steps_only_the_whole_is_predicted(folder):
    (there,) = predicted(folder, "poor", loop_s=None, communication_share=None)
    assert there.figures.wall_s > 72
    assert there.figures.loop_s is None


def test_what_was_never_reached_is_not_reached_there(with_steps):
    (there,) = predicted(with_steps, "poor")
    assert (there.figures.reached_s, there.figures.reached_step) == (None, None)


def test_each_profile_is_a_problem_of_its_own_and_rough_ones_are_told(with_steps):
    found = predicted(with_steps, "poor", "cross-continental", reached_s=20.0, reached_step=2)
    assert [line.problem.profile for line in rank(found)] == [
        "poor (predicted, from mobile)",
        "cross-continental (predicted without losses and jitter, from mobile)",
    ]


def test_a_run_that_cannot_be_predicted_is_left_out_and_told(folder):
    poor = load_profile("poor")
    rows = json.loads((folder / "links.json").read_text())
    (folder / "links.json").write_text(json.dumps([{**rows[0], "loss_pct": 1.0}, *rows[1:]]))
    assert predicted_outcomes(outcome(), folder, [poor]) == (
        [],
        ["run on poor: its own links had losses, jitter or the like"],
    )
    (folder / "links.json").write_text("[]")
    found, [reason] = predicted_outcomes(outcome(), folder, [poor])
    assert found == [] and "not shaped" in reason


def test_a_run_whose_links_changed_is_left_out_and_told(folder):
    (folder / "summary.json").write_text('{"links_changed": "other links are in force (node1)"}')
    found, [reason] = predicted_outcomes(outcome(), folder, [load_profile("poor")])
    assert found == [] and "its links changed while it ran" in reason


def test_a_run_whose_records_are_damaged_is_left_out_and_told(folder):
    """A ring without messages: no model can divide by them."""
    for path in folder.glob("metrics/*.collectives.jsonl"):
        path.write_text(path.read_text().replace('"messages": 8', '"messages": 0'))
    found, [reason] = predicted_outcomes(outcome(), folder, [load_profile("poor")])
    assert found == [] and "inconsistent" in reason
