"""What verbs print is about the requested cluster, and at most a screen or two long."""

import sys

import pytest

from cluster.accounting.metrics import LastLines
from cluster.accounting.summary import environment_summary
from cluster.base.console import Console, command_line
from cluster.base.errors import ClusterError
from cluster.cli.print_summary import print_summary
from cluster.run.runner import Run
from cluster.shaping.link_state import make_link_state
from cluster.status import MOST_ROWS, print_links, print_shape
from protocol.link import Link
from protocol.metrics import End, Rollout, Start

LINK = Link("node1", "node2", 1.0, 1.0, 0.0, 0.0, 1.0, wire="netem")
SUMMARY = {
    "exit_codes": {"node1": 0},
    "restarts": {},
    "seconds": {},
    "bytes": {"links": {}, "total": 0, "expected": None, "loop": None},
    "collectives": [],
    "attribution": None,
    "what_if": [],
    "critical_path": None,
    "causes": [],
    "tested": {},
    "test_accuracy": None,
    "environments": None,
    "experience": None,
    "wall_s": 1,
    "host": None,
    "links": [LINK._asdict()],
    "verified": False,
    "links_changed": "",
    "undecided": "",
}


def test_a_hint_names_the_cluster(capsys):
    print_shape(make_link_state({}, {}, {}), "second")
    assert "cluster.shape --name second --profile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("started", "says"),
    [
        (["/venv/bin/python", "/venv/bin/gradwire", "status"], "gradwire status"),
        (["python3", "-m", "cluster.status"], "python -m cluster.status"),
        (["python3"], "python -m cluster.status"),
    ],
)
def test_hints_name_commands_as_this_one_was_typed(capsys, monkeypatch, started, says):
    monkeypatch.setattr(sys, "orig_argv", started)
    monkeypatch.setattr(sys, "argv", ["/somewhere/cluster/status.py"])
    Console().fail(ClusterError("it is so", "python -m cluster.status"))
    assert capsys.readouterr().err.endswith(f"try: {says}\n")
    assert command_line() == says


def test_of_a_big_cluster_the_first_links_are_shown(capsys):
    print_links([LINK] * (MOST_ROWS + 5))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + MOST_ROWS + 1
    assert "5 more links" in lines[-1]


def test_a_run_over_links_that_were_not_measured_says_so(capsys, tmp_path):
    print_summary(Run(tmp_path, SUMMARY))
    said = capsys.readouterr().out
    assert "the links were not measured" in said
    assert "COMPUTE" not in said  # no seconds were recorded
    print_summary(Run(tmp_path, SUMMARY | {"links_changed": "a trace plays"}))
    assert "the links were not as asked throughout: a trace plays" in capsys.readouterr().out
    print_summary(Run(tmp_path, SUMMARY | {"links_changed": "it", "verified": True}))
    assert "for the beginning of the run only; then: it" in capsys.readouterr().out
    print_summary(Run(tmp_path, SUMMARY | {"verified": True}))
    said = capsys.readouterr().out
    assert "not measured" not in said and "not all proved" not in said


def test_a_run_over_links_that_were_undecided_says_so(capsys, tmp_path):
    undecided = "1 of 6 links undecided: node3 -> node1 (jitter)"
    print_summary(Run(tmp_path, SUMMARY | {"verified": True, "undecided": undecided}))
    assert f"not all proved (--allow-undecided): {undecided}" in capsys.readouterr().out


def test_of_environments_their_steps_are_told_and_the_time_that_they_took(capsys, tmp_path):
    told = {
        f"node{n}": LastLines(
            Start(n - 1, 100.0 + n), Rollout(n - 1, 105.0, 21, 3000, 0), End(n - 1, 111.0)
        )
        for n in (1, 2)
    }
    environments = environment_summary(told)
    assert environments == {"steps": 6000, "steps_s": 600.0}
    assert environment_summary({"node1": LastLines(Start(0, 1.0))}) is None
    failed = {name: lines._replace(end=None) for name, lines in told.items()}
    assert environment_summary(failed) == {"steps": 6000, "steps_s": None}
    resumed = Start(1, 102.0, {"resume": "x"})
    went_on = told | {"node2": told["node2"]._replace(start=resumed)}
    assert environment_summary(went_on) == {"steps": 6000, "steps_s": None}
    own = {
        "seconds": {"node1": {"rollout": 2.0, "compute": 1.0}},
        "tested": {"test_return": 499.5, "test_length": 499.5},
        "final_loss": 0.25,
        "environments": environments,
    }
    print_summary(Run(tmp_path, SUMMARY | own))
    shown = capsys.readouterr().out
    assert "ROLLOUT s" in shown and "2.0" in shown
    assert "test return 499.50   final loss 0.2500" in shown
    assert "environments made 6,000 steps (600 a second)" in shown
    print_summary(
        Run(tmp_path, SUMMARY | {"seconds": {"node1": {"rollout": 4e-5, "compute": 1.0}}})
    )
    shown = capsys.readouterr().out
    assert "COMPUTE s" in shown and "ROLLOUT" not in shown and "environments made" not in shown
    assert "STRATEGY" not in shown
    print_summary(
        Run(tmp_path, SUMMARY | {"seconds": {"node1": {"strategy": 0.7, "compute": 1.0}}})
    )
    assert "STRATEGY s" in capsys.readouterr().out


def test_bounds_are_named_for_what_they_are(tmp_path, capsys):
    row = {"kind": "all_reduce", "purpose": "train", "bytes": 8, "count": 2, "timed": 2}
    row |= {"seconds": 3.0, "gloo_bound_s": 1.5, "links_bound_s": 0.25, "ratio": 2.0}
    print_summary(Run(tmp_path, SUMMARY | {"collectives": [row], "bounds": "measured"}))
    lines = capsys.readouterr().out.splitlines()
    heads, figures, meaning = (one for one in lines if "all_reduce" in one or "LINKS" in one)
    assert heads.split()[-5:] == ["GLOO", "s", "RATIO", "LINKS", "s"]
    assert figures.split()[-4:] == ["3.000", "1.500", "2.00", "0.250"]
    assert meaning == (
        "GLOO s: gloo's ring on these links, as measured, at best;"
        " LINKS s: what the links allow at best, by any way"
    )
