"""What ranks left, sorted into the run folder: nothing of it may break the run, or leave its place."""

import io
import tarfile

import pytest

from cluster.places import place_ranks
from cluster.runs import last_events, unpack_results

METRICS = '{"event": "start", "rank": 1, "time": 1.0}\n{"event": "end", "rank": 1, "time": 2.0}\n'


def archive(files=(), links=(), pipes=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in dict(files).items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
        for kind, members in ((tarfile.SYMTYPE, dict(links)), (tarfile.FIFOTYPE, dict(pipes))):
            for name, target in members.items():
                info = tarfile.TarInfo(f"./{name}")
                info.type, info.linkname = kind, target
                tar.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def unpack(tmp_path):
    """A function that unpacks what node2, rank 1, left."""
    places = place_ranks(["node1", "node2"])

    def call(node="node2", **left):
        own = [place for place in places if place.node == node]
        return unpack_results(tmp_path, node, own, archive(**left))

    return call


def test_metrics_have_a_place_of_their_own(unpack, tmp_path):
    assert unpack(files={"metrics.jsonl": METRICS, "collectives.jsonl": "{}\n"}) == []
    assert last_events(tmp_path, "node2").keys() == {"start", "end"}
    assert (tmp_path / "metrics" / "node2.collectives.jsonl").exists()
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("words", ["loss 0.5\n", '{"loss": 0.5}\n', "[1]\n", "", "\0\n"])
def test_a_users_own_file_of_that_name_is_the_users(unpack, tmp_path, words):
    unpack(files={"metrics.jsonl": words, "collectives.jsonl": words})
    assert (tmp_path / "files" / "node2" / "metrics.jsonl").read_text() == words
    assert (tmp_path / "files" / "node2" / "collectives.jsonl").read_text() == words
    assert last_events(tmp_path, "node2") == {}


def test_the_model_is_rank_0s(unpack, tmp_path):
    for node in ("node1", "node2"):
        unpack(node, files={"model.pt": node})
    assert (tmp_path / "model.pt").read_text() == "node1"
    assert (tmp_path / "files" / "node2" / "model.pt").read_text() == "node2"


def test_what_is_no_plain_file_is_left_out_and_nothing_else(unpack, tmp_path):
    links = {"latest.pt": "/run/kept.pt", "out.pt": "../../out.pt", "near.pt": "kept.pt"}
    left_out = unpack(files={"kept.pt": "kept"}, links=links, pipes={"pipe": ""})
    assert sorted(left_out) == ["latest.pt", "out.pt", "pipe"]
    assert (tmp_path / "files" / "node2" / "near.pt").read_text() == "kept"
