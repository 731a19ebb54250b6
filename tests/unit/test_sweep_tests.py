"""A sweep tests all strategies by the same rule."""

import pytest

from cluster.base.errors import UsageError
from cluster.sweeps.cells import sweep_cells
from cluster.sweeps.page import sweep_page
from cluster.sweeps.planned import TESTED, plan_runs, rule_of_tests
from cluster.sweeps.sweep_file import parse_sweep

PLAN = {"profile": "wan", "nodes": 2}


def planned(tmp_path, **document):
    plan = parse_sweep(PLAN | document)
    return plan_runs(plan, sweep_cells(plan), tmp_path / "out")


def test_the_average_is_tested_after_the_last_step_under_every_strategy(tmp_path):
    """This holds also for strategies that agree on nothing before the end; rank 0 would test its own replica."""
    options = {"steps": 4, "eval-every": 2, "strategy": ["ddp", "sparta", "gossip", "fedavg"]}
    for one in planned(tmp_path, options=options):
        assert one.program.argv[-2:] == ("--eval", "after")
        assert one.program.config["eval"] == "after"
    [said] = planned(tmp_path, options={"eval": "after"})
    assert said.program.argv.count("--eval") == 1


def test_tests_while_others_go_on_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"eval: during, in a sweep\. Tested is, under every"):
        planned(tmp_path, options={"strategy": "sparta", "eval": "during"})


def test_a_learner_and_scripts_of_one_s_own_test_as_they_do(tmp_path):
    [learner] = planned(tmp_path, options={"task": "mapf", "steps": 4})
    assert "--eval" not in learner.program.argv
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text("print()\n")
    [own] = planned(tmp_path, program=[str(script)], options={"eval": "during"})
    assert own.program.argv[-2:] == ("--eval", "during")


def test_the_report_says_the_rule_where_it_holds(tmp_path):
    training = planned(tmp_path, options={"strategy": ["ddp", "sparta"]})
    assert rule_of_tests(training) == TESTED
    assert rule_of_tests(planned(tmp_path, options={"task": "mapf", "steps": 4})) == ""
    [ranking, *_] = sweep_page("name", [], [], 0, [], "command", TESTED).sections
    assert ranking.sentence.endswith(
        "the average over all ranks, after the last step (--eval after)."
    )
