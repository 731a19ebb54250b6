"""Several runs on one page: what distinguishes them, and their curves."""

from dataclasses import replace

import pytest
from run_folders import change_summary, make_run

from cluster.reporting.charts.learning import learning_chart
from cluster.reporting.compare import comparison_page
from cluster.reporting.differences import differences, series_of
from cluster.reporting.read_run import read_run
from cluster.reporting.run_data import Experience, Measure, Proof, RunData

TRAIN = "python3 -m node.train --task ppo --eval-every 540"


def run(flags="", **facts):
    """A run of our training with these flags, whose strategy has options that were not typed."""
    known = {"task": "ppo env=CartPole-v1", "strategy": "ddp hook=none", "links": "lan, delay_ms 1"}
    named = {name.replace("_", " "): value for name, value in facts.items()}
    return RunData(
        "a run",
        "done",
        1.0,
        (),
        Proof("", "", ""),
        facts=known | {"program": f"{TRAIN} {flags}"} | named,
    )


def sections(runs):
    return {section.key: section for section in comparison_page(runs).sections}


def test_runs_are_compared(tmp_path):
    first, second = (make_run(tmp_path / name, steps=n) for name, n in (("a", 10), ("b", 20)))
    change_summary(second, wall_s=42.6, host={"limits": ["packets were late"]})
    page = comparison_page([read_run(first), read_run(second)])
    assert page.lead == "a was the fastest, 21.3 s; b took 2.00 times as long."
    assert [section.key for section in page.sections] == [
        *("runs", "tests", "losses", "attribution", "reproduce")
    ]
    assert "The host was the limit of b" in page.sections[0].sentence
    for curves in page.sections[1:3]:
        rows = curves.charts[0].data[curves.key]
        assert {row["run"] for row in rows} == {"a", "b"}


def test_a_run_that_took_longer_is_not_said_to_have_taken_as_long(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in ("a", "b")]
    page = comparison_page([runs[0], replace(runs[1], wall_s=21.35)])
    assert page.lead == "a was the fastest, 21.3 s; b took 1.002 times as long."


def test_a_run_is_compared_with_itself(tmp_path):
    one = read_run(make_run(tmp_path / "a"))
    table = sections([one, one])["runs"].tables[0]
    assert [row[0] for row in table.rows] == ["a (1)", "a (2)"]
    assert "differs in" not in table.header


FEW = "--strategy fedavg --set H=4 --seed"
MANY = "--strategy fedavg --set H=16 --seed"
FEDAVG = {"strategy": "fedavg H=4 fraction=1.0"}
STRATEGIES = [run(f"{FEW} 1", **FEDAVG), run(f"{FEW} 2", **FEDAVG)]
STRATEGIES += [run(f"{MANY} 1", **FEDAVG), run("--seed 1")]


def test_runs_differ_in_what_was_typed_and_in_defaults_that_others_changed():
    assert differences(STRATEGIES) == [
        *("fedavg H=4 seed 1", "fedavg H=4 seed 2", "fedavg H=16 seed 1", "ddp seed 1")
    ]


def test_runs_that_differ_only_in_their_seed_share_a_line():
    labels = series_of(STRATEGIES, list("abcd"))
    assert labels == ["fedavg H=4", "fedavg H=4", "fedavg H=16", "ddp"]


def test_repetitions_alone_have_a_line_each():
    assert series_of([run("--seed 1"), run("--seed 2")], list("ab")) == ["seed 1", "seed 2"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([{"nodes": "3"}, {"nodes": "4"}], ["nodes 3", "nodes 4"]),
        ([{"links": "wan, delay_ms 9"}, {"links": "mobile, loss_pct 1"}], ["wan", "mobile"]),
        ([{"topology": "ring"}, {"topology": "star"}], ["ring", "star"]),
        (
            [{"seed_of_the_links": "1"}, {"seed_of_the_links": "2"}],
            ["seed of the links 1", "seed of the links 2"],
        ),
        (
            [{"program": "python3 train.py"}, {"program": "python3 b.py -x"}],
            ["train.py", "b.py -x"],
        ),
        ([{"program": "python3 'cut"}, {"program": "python3 b"}], ["'cut", "b"]),
    ],
)
def test_facts_distinguish_runs(facts, said):
    assert series_of([run(**one) for one in facts], list("ab")) == said


@pytest.mark.parametrize(
    "facts",
    [
        [{}, {}],
        [{"links": "lan, delay_ms 1"}, {"links": "lan, delay_ms 2"}],
        [{"nodes": "3"}, {"program": f"{TRAIN} --lr {'1' * 70}", "nodes": "4"}],
    ],
    ids=["nothing", "two of one name", "more than fits"],
)
def test_runs_that_nothing_short_distinguishes_have_their_names(facts):
    assert series_of([run(**one) for one in facts], list("ab"))[-1] == "b"


def test_no_run_differs_from_none():
    assert differences([]) == series_of([], []) == []


def test_lines_have_their_label_and_the_table_says_what_they_are(tmp_path):
    runs = [
        replace(read_run(make_run(tmp_path / name)), facts=one.facts)
        for name, one in zip("abcd", STRATEGIES, strict=True)
    ]
    found = sections(runs)
    chart = found["tests"].charts[0]
    assert {(row["run"], row["series"]) for row in chart.data["tests"]} == {
        *(("a", "fedavg H=4"), ("b", "fedavg H=4"), ("c", "fedavg H=16"), ("d", "ddp"))
    }
    assert found["runs"].tables[0].header[:2] == ["run", "differs in"]
    assert found["runs"].tables[0].rows[2][:2] == ["c", "fedavg H=16 seed 1"]


def test_a_test_is_drawn_where_its_step_ended_however_late_it_was_made(tmp_path):
    """With `--eval after`, all tests are made when the training is over."""
    one = read_run(make_run(tmp_path / "a"))
    ended = {step: max(p.at_s for p in one.steps if p.step == step) for step in (10, 20)}
    rows = learning_chart(one).data["test_accuracy"]
    assert {row["step"]: row["at_s"] for row in rows} == pytest.approx(ended, abs=1e-3)
    assert sections([one])["tests"].charts[0].data["tests"][0]["at_s"] == rows[0]["at_s"]


@pytest.mark.parametrize(("times", "scale"), [(5, None), (50, "symlog")])
def test_bytes_are_on_a_logarithmic_axis_if_some_runs_sent_far_more(tmp_path, times, scale):
    one = read_run(make_run(tmp_path / "a"))
    more = [replace(point, sent_bytes=times * point.sent_bytes) for point in one.steps]
    chart = sections([one, replace(one, name="b", steps=more)])["tests"].charts[0]
    assert chart.wide["hconcat"][2]["encoding"]["x"].get("scale", {}).get("type") == scale


def learners(one, **values):
    """The run as one of a learner, whose steps alone are recorded."""
    steps = [point for point in one.steps if point.rank == 0]
    return replace(one, **{"name": "l", "steps": steps, "experience": Experience({}, {})} | values)


@pytest.mark.parametrize("key", ["tests", "losses"])
def test_a_learner_has_no_curve_over_bytes_as_those_of_its_actors_belong_to_no_step(tmp_path, key):
    one = read_run(make_run(tmp_path / "a"))
    chart = sections([one, learners(one)])[key].charts[0]
    assert len(chart.wide["hconcat"]) == 3
    assert {row["run"] for row in chart.data[key] if "sent_mb" in row} == {"a"}
    assert "scale" not in chart.wide["hconcat"][2]["encoding"]["x"]
    assert len(sections([learners(one)])[key].charts[0].wide["hconcat"]) == 2


def test_a_learner_that_was_killed_has_no_curve_over_bytes_either(tmp_path):
    """No summary says what it was; its lines of experience do."""
    one = read_run(make_run(tmp_path / "a"))
    measures = [*one.measures, Measure("replay_ratio", 0, 10, 5.0, 1.0)]
    killed = learners(one, experience=None, measures=measures)
    assert len(sections([killed])["tests"].charts[0].wide["hconcat"]) == 2
    assert len(learning_chart(killed).wide["vconcat"][0]["hconcat"]) == 2


def with_tests(name, figure, steps):
    """A run with tests of one figure, after these steps."""
    measures = [Measure(figure, 0, step, float(step), 0.5) for step in steps]
    return replace(run(), name=name, measures=measures)


def test_runs_that_were_tested_once_do_not_take_the_curve_of_another_away():
    """Together they have two tests of their accuracy, but none of them has a line of it."""
    once = [with_tests(name, "test_accuracy", [10]) for name in "ab"]
    chart = sections([*once, with_tests("c", "validation_loss", [10, 20])])["tests"].charts[0]
    assert {row["run"] for row in chart.data["tests"]} == {"c"}
    assert "tests" not in sections(once)


def test_of_several_tests_that_runs_made_twice_the_most_important_one_is_drawn():
    runs = [
        with_tests("a", "validation_loss", [10, 20]),
        with_tests("b", "test_accuracy", [10, 20]),
    ]
    chart = sections(runs)["tests"].charts[0]
    assert {row["run"] for row in chart.data["tests"]} == {"b"}
