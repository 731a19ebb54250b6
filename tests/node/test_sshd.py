"""Tests who can log in: the configuration as sshd itself reports it."""

import subprocess
from pathlib import Path

import node

CONFIG = Path(node.__file__).with_name("sshd_config")
WANTED = {
    "authenticationmethods": "publickey",
    "passwordauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "permitemptypasswords": "no",
    "permitrootlogin": "without-password",
    "usepam": "no",
    "clientaliveinterval": "10",
    "clientalivecountmax": "6",
}


def test_keys_let_in_and_nothing_else_does(tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    argv = ["/usr/sbin/sshd", "-T", "-f", CONFIG, "-h", key]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    assert {option: found[option] for option in WANTED} == WANTED
