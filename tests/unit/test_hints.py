"""What verbs print is about the cluster that was asked for, and no longer than a screen or two."""

import signal

import pytest

from cluster.errors import RunFailed
from cluster.failures import raise_failure
from cluster.places import place_ranks
from cluster.ranks import Ended
from cluster.report import print_summary
from cluster.run import Run
from cluster.status import MOST_ROWS, print_links, print_shape

LINK = {
    "src": "node1",
    "dst": "node2",
    "rate_mbyte_s": 1,
    "delay_ms": 1,
    "jitter_ms": 0,
    "loss_pct": 0,
    "buffer_ms": 1,
    "wire": "netem",
    "loss_burst": 1,
    "duplicate_pct": 0,
    "corrupt_pct": 0,
    "reorder_pct": 0,
    "distribution": "normal",
}
SUMMARY = {
    "exit_codes": {"node1": 0},
    "seconds": {},
    "bytes": {"links": {}, "total": 0, "expected": None, "loop": None},
    "collectives": [],
    "tested": {},
    "test_accuracy": None,
    "wall_s": 1,
    "host": None,
    "links": [LINK],
    "verified": False,
}


def test_a_hint_names_the_cluster(capsys):
    print_shape({"links": []}, "second")
    assert "cluster.shape --name second --profile" in capsys.readouterr().out


def test_of_a_big_cluster_the_first_links_are_shown(capsys):
    print_links([LINK] * (MOST_ROWS + 5))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + MOST_ROWS + 1
    assert "5 more links" in lines[-1]


def test_a_run_over_links_that_were_not_measured_says_so(capsys, tmp_path):
    print_summary(Run(tmp_path, SUMMARY))
    said = capsys.readouterr().out
    assert "the links were not measured" in said
    assert "COMPUTE" not in said  # nobody counted any
    print_summary(Run(tmp_path, SUMMARY | {"verified": True}))
    assert "not measured" not in capsys.readouterr().out


def test_ranks_that_we_stopped_are_not_said_to_be_killed(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "node2.log").write_text("boom\n")
    first, second = place_ranks(["node1", "node2"])
    ended = [Ended(second, 1, 0.0), Ended(first, -signal.SIGTERM, 1.0)]
    with pytest.raises(RunFailed, match="after it: node1 was stopped"):
        raise_failure(tmp_path, ended, (), (), {})


def test_what_a_rank_says_of_its_failure_stands_before_its_log(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "node1-1.log").write_text("last words\n")
    place = place_ranks(["node1", "node2"], 2)[1]
    with pytest.raises(RunFailed) as failed:
        raise_failure(tmp_path, [Ended(place, 1, 0.0, "ValueError: out of cheese")], (), (), {})
    lines = failed.value.message.splitlines()
    assert lines[0].startswith("rank 1 on node1 ended with exit code 1: the root cause")
    assert lines[1:] == ["  ValueError: out of cheese", "  | last words"]
