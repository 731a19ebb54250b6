"""Python packages of the image: known by their checksum, wherever they come from."""

import hashlib
import sys

import pytest

from cluster.base.errors import ClusterError
from cluster.engine import wheels


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = wheels.cache_folder()
    folder.mkdir(parents=True)
    return folder


def requirements(tmp_path, content):
    path = tmp_path / "requirements.txt"
    path.write_text(f"thing==1 --hash=sha256:{hashlib.sha256(content).hexdigest()}\n")
    return path


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/python")
    (cache / "thing.whl").write_bytes(b"right")
    (cache / "other.whl").write_bytes(b"wrong")
    assert wheels.ensure_wheels(requirements(tmp_path, b"right"), print) == [cache / "thing.whl"]


def test_a_wheel_of_another_checksum_counts_as_none(tmp_path, cache):
    (cache / "thing.whl").write_bytes(b"wrong")
    empty = tmp_path / "empty"
    empty.mkdir()
    said = []
    with pytest.raises(ClusterError, match="pip could not fetch:"):
        wheels.ensure_wheels(requirements(tmp_path, b"right"), said.append)
    assert said == ["fetching Python packages of the image"]
