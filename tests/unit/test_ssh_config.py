"""The configuration for OpenSSH's own client, read back by that client."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from cluster.base.spec import ClusterSpec
from cluster.ssh.keys import ensure_keys, ssh_config


def expanded(config, option):
    """The files that ssh would read, after its own substitutions."""
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
    spec = SimpleNamespace(nodes=ClusterSpec(size=1).nodes, state_dir=folder)
    config = tmp_path / "ssh_config"
    config.write_text(ssh_config(spec))
    logged = str(folder).replace("\\", "\\\\")  # as ssh writes it into its log
    assert any(f"{logged}/id_ed25519 type" in line for line in expanded(config, "identity file"))
    assert f"userknownhostsfile {folder}/known_hosts" in expanded(config, "userknownhostsfile")


def test_keys_can_be_made_in_a_folder_whose_name_is_no_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"gr\xfc\xdfe")
    ensure_keys(SimpleNamespace(nodes=ClusterSpec(size=1).nodes, state_dir=folder))
    assert b"gr\xfc\xdfe/id_ed25519" in (folder / "ssh_config").read_bytes()
