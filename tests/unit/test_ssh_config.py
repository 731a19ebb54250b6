"""Keys, and the OpenSSH configuration, as read back by OpenSSH's own client."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from cluster.base import spec
from cluster.base.spec import ClusterSpec
from cluster.ssh.keys import ensure_keys, ssh_config


def expanded(config, option):
    """Return ssh's messages about an option, with the files that it would read after its own substitutions."""
    words = ["ssh", "-v", "-F", config, "-o", "ProxyCommand=false", "node1", "true"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=20).stderr
    shown = subprocess.run(
        ["ssh", "-G", *words[2:4], "node1"], capture_output=True, text=True
    ).stdout
    return [line for line in (said + shown).splitlines() if option in line]


@pytest.mark.parametrize(
    "name", ["plain", "100%h", 'a "quoted" b', "it's", "back\\slash", '\\"', "%%", "a b", "%d %n"]
)
def test_a_checkout_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    cluster = SimpleNamespace(nodes=ClusterSpec(size=1).nodes, state_dir=folder)
    config = tmp_path / "ssh_config"
    config.write_text(ssh_config(cluster))
    logged = str(folder).replace("\\", "\\\\")  # as ssh writes it to its log
    assert any(f"{logged}/id_ed25519 type" in line for line in expanded(config, "identity file"))
    assert f"userknownhostsfile {folder}/known_hosts" in expanded(config, "userknownhostsfile")


def test_keys_can_be_made_in_a_folder_whose_name_is_no_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"gr\xfc\xdfe")
    ensure_keys(SimpleNamespace(nodes=ClusterSpec(size=1).nodes, state_dir=folder))
    assert b"gr\xfc\xdfe/id_ed25519" in (folder / "ssh_config").read_bytes()


@pytest.fixture
def keys(monkeypatch, tmp_path):
    """The folder of a new cluster's keys."""
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    ensure_keys(ClusterSpec("lab", size=2))
    return ClusterSpec("lab").state_dir


def test_keys_are_their_owners_alone(keys):
    folders = [keys, keys / "node1", keys / "node2"]
    assert {oct(folder.stat().st_mode & 0o777) for folder in folders} == {"0o700"}
    private = [path for path in keys.rglob("*") if b"PRIVATE KEY" in head(path)]
    assert len(private) == 5  # the login key; for each node, a host key and the login key on it
    assert {oct(path.stat().st_mode & 0o777) for path in private} == {"0o600"}


def head(path):
    return path.read_bytes()[:100] if path.is_file() else b""


def test_host_keys_are_pinned_for_openssh_too(keys):
    (said,) = expanded(keys / "ssh_config", "stricthostkeychecking")
    assert said.split()[1] in ("true", "yes")


LAB = ClusterSpec("lab", size=2)


def test_keys_that_are_whole_stay(keys):
    assert ensure_keys(LAB) == set()
    public = keys / "id_ed25519.pub"
    public.write_text(f"{public.read_text().strip()} me@here\n")  # ssh-keygen adds such a comment
    assert ensure_keys(LAB) == set()


@pytest.mark.parametrize(
    ("half", "new"),
    [
        ("id_ed25519", {"node1", "node2"}),
        ("id_ed25519.pub", {"node1", "node2"}),
        ("node2/ssh_host_ed25519_key", {"node2"}),
        ("node2/ssh_host_ed25519_key.pub", {"node2"}),
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_key_that_a_power_cut_has_cut_short_is_made_anew(keys, half, new, share):
    whole = (keys / half).read_bytes()
    (keys / half).write_bytes(whole[: int(share * len(whole))])
    assert ensure_keys(LAB) == new
    assert ensure_keys(LAB) == set()


def test_one_that_lacks_only_its_last_byte_too(keys):
    """OpenSSH refuses it, though Python's libraries do not."""
    key = keys / "id_ed25519"
    key.write_bytes(key.read_bytes()[:-1])
    assert ensure_keys(LAB) == {"node1", "node2"}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0" * 80, b"ssh-ed25519 AAAA\n"])
def test_a_public_half_that_is_no_text_or_another_keys_is_made_anew(keys, content):
    (keys / "node1" / "ssh_host_ed25519_key.pub").write_bytes(content)
    assert ensure_keys(LAB) == {"node1"}
    assert ensure_keys(LAB) == set()
