"""The cells of a sweep as they are run: all strategies are tested by the same rule, and each is resolved once."""

from pathlib import Path

import pytest

from cluster.base.errors import UsageError
from cluster.run.program import training
from cluster.sweeps import planned as resolving
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


OWN = """
from dataclasses import dataclass

from node.strategies.base import Strategy


@dataclass
class Mine(Strategy):
    pass
"""


def test_cells_that_differ_in_their_seeds_alone_are_resolved_together(tmp_path, monkeypatch):
    """Each resolution starts a Python. What they come to is the same as by themselves: a record is known by it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.py").write_text(OWN)
    asked, drawn = [], []
    monkeypatch.setattr(
        resolving, "training", lambda *given: asked.append(given) or training(*given)
    )
    link_spec = resolving.make_link_spec
    monkeypatch.setattr(
        resolving,
        "make_link_spec",
        lambda *where, **how: drawn.append(where) or link_spec(*where, **how),
    )
    options = {"strategy": ["ddp", f"{tmp_path}/in/mine.py:Mine"], "steps": 4}
    found = planned(tmp_path, options=options, seed=[3, 1, 2], link_seed=[7, 8])
    assert (len(found), len(asked), len(drawn)) == (12, 2, 2)
    for one in found:
        alone = training(one.cell.words, None, 2)
        argv = (*alone.argv, "--eval", "after")
        assert one.program.argv == argv and one.program.folder == alone.folder
        assert one.program.config == {**alone.config, "eval": "after"}
        assert one.experiment["program"]["argv"] == list(argv)
    assert {(one.link_spec.seed, one.program.config["seed"]) for one in found} == {
        (link_seed, seed) for link_seed in (7, 8) for seed in (1, 2, 3)
    }


def test_a_folder_that_is_sent_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.py").write_text("print()\n")
    read = []
    monkeypatch.setattr(resolving, "folder_digest", lambda folder: read.append(folder) or "digest")
    found = planned(
        tmp_path, program=[f"{tmp_path}/in/train.py"], seed=[1, 2], options={"x": [1, 2]}
    )
    assert read == [Path(tmp_path / "in")]
    assert [one.program.argv[-1] for one in found] == ["1", "2", "1", "2"]
