"""`down` of several clusters: one that cannot be removed does not keep the others."""

import json

import pytest

from cluster import down
from cluster.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, ClusterError, UsageError

FAILURES = {
    "b": ClusterError("cluster 'b' is in use", "wait for that command"),
    "d": PermissionError(13, "Permission denied", "/state"),
    "e": UsageError("no", "say yes"),
}


class FakeCluster:
    """A cluster that is removed, unless it is among FAILURES."""

    def __init__(self, name, force):
        self.name = name

    def down(self):
        if self.name in FAILURES:
            raise FAILURES[self.name]
        return [f"container {self.name}-node1"]


@pytest.fixture
def take_down(monkeypatch, capsys):
    """A function that runs the verb; returns its exit code, its output and its errors."""

    def run(*argv, names=("a", "b", "c", "d")):
        monkeypatch.setattr(down, "Cluster", FakeCluster)
        monkeypatch.setattr(down, "_all_names", lambda *, force: list(names))
        code = down.main([*argv])
        return code, *capsys.readouterr()

    return run


def test_the_others_are_removed_and_told_and_then_what_failed(take_down):
    code, out, err = take_down("--all")
    assert code == EXIT_FAILED
    assert out.splitlines() == [f"{name}: removed container {name}-node1" for name in "ac"]
    assert "2 of 4 clusters were not removed: b, d" in err
    assert "b: cluster 'b' is in use" in err and "d: Permission denied: /state" in err
    assert "try: wait for that command" in err


def test_the_document_has_what_was_removed_and_what_failed(take_down):
    code, out, _ = take_down("--all", "--json")
    document = json.loads(out)
    assert code == EXIT_FAILED and list(document["removed"]) == ["a", "c"]
    assert document["failed"] == {
        "b": "cluster 'b' is in use",
        "d": "Permission denied: /state",
    }


def test_one_cluster_fails_in_its_own_words(take_down):
    code, out, err = take_down("--name", "e")
    assert (code, out) == (EXIT_USAGE, "") and "of 1" not in err
    assert take_down("--name", "a")[0] == EXIT_DONE
