"""The image's Python packages are identified by their checksums, wherever they come from."""

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


def requirements(tmp_path, *contents):
    """Return a requirements file with one package, whose wheels have these contents."""
    path = tmp_path / "requirements.txt"
    hashes = [f"--hash=sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    path.write_text(" ".join(["# a thing\nthing==1", *hashes]) + "\n")
    return path


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/python")
    (cache / "thing-any.whl").write_bytes(b"right")
    (cache / "other-any.whl").write_bytes(b"wrong")
    found = wheels.ensure_wheels(requirements(tmp_path, b"right"), "x86_64", print)
    assert found == [cache / "thing-any.whl"]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_of_a_package_with_a_wheel_for_each_processor_the_images_own_is_taken(
    tmp_path, cache, architecture, monkeypatch
):
    monkeypatch.setattr(sys, "executable", "/no/python")
    for one in ("x86_64", "aarch64"):
        (cache / f"thing-manylinux_2_28_{one}.whl").write_bytes(one.encode())
    found = wheels.ensure_wheels(requirements(tmp_path, b"x86_64", b"aarch64"), architecture, print)
    assert found == [cache / f"thing-manylinux_2_28_{architecture}.whl"]


def test_a_wheel_for_another_processor_counts_as_none(tmp_path, cache, monkeypatch):
    asked = []
    monkeypatch.setattr(wheels, "_download", lambda *words: asked.append(words))
    (cache / "thing-manylinux_2_28_aarch64.whl").write_bytes(b"aarch64")
    file = requirements(tmp_path, b"x86_64", b"aarch64")
    with pytest.raises(ClusterError, match="pip left no wheel of thing==1"):
        wheels.ensure_wheels(file, "x86_64", print)
    assert asked == [(file, "x86_64", cache)]


def test_a_wheel_of_another_checksum_counts_as_none(tmp_path, cache):
    (cache / "thing-any.whl").write_bytes(b"wrong")
    empty = tmp_path / "empty"
    empty.mkdir()
    said = []
    with pytest.raises(ClusterError, match="pip could not fetch:"):
        wheels.ensure_wheels(requirements(tmp_path, b"right"), "x86_64", said.append)
    assert said == ["fetching Python packages of the image"]
