"""The folder shared by all ranks: nodes that see a different one are named before anything starts."""

import pytest

from cluster.base.errors import NodeError
from cluster.base.spec import ClusterSpec
from cluster.run.shared_folder import fetch_shared, make_shared
from cluster.ssh.remote_process import Result


class Nodes:
    """A fleet whose nodes have separate disks, except for the named ones."""

    nodes = ClusterSpec(size=3).nodes

    def __init__(self, *common):
        self.common, self.asked = common, []

    def run(self, argv, *, nodes, check=True):
        self.asked.append((argv[0], list(nodes)))
        fine = argv[0] == "mkdir"
        return {n: Result(n, 0 if fine or n in self.common else 1, b"", b"") for n in nodes}


def test_it_is_made_once_and_looked_for_everywhere_else():
    fleet = Nodes("node2", "node3")
    make_shared(fleet, "run")
    assert fleet.asked == [("mkdir", ["node1"]), ("test", ["node2", "node3"])]


def test_a_node_that_does_not_see_it_is_named():
    with pytest.raises(NodeError, match="node1 has made") as caught:
        make_shared(Nodes("node2"), "run")
    assert list(caught.value.outcomes) == ["node3"]


def test_where_no_node_is_left_nothing_is_fetched(tmp_path):
    assert fetch_shared(Nodes(), [], tmp_path, 1, None) == "no node answers any more"
