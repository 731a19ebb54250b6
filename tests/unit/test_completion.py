"""Completion in a shell: verbs, and each verb's options and values, by argcomplete's protocol."""

import os
import subprocess
import sys

import pytest

from cluster.base.paths import PROJECT_DIR


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("gradwire sta", {"status"}),
        ("gradwire d", {"doctor", "down"}),
        ("gradwire up --gpu", {"--gpus"}),
        ("gradwire launch --profile mob", {"mobile", "mobile-real"}),
        ("gradwire shape --topology r", {"ring"}),
    ],
)
def test_a_shell_completes(tmp_path, line, completed):
    found = tmp_path / "found"
    environ = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(found),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-m", "cluster"], cwd=PROJECT_DIR, env=environ, timeout=60)
    assert {word.strip() for word in found.read_text().split("\n")} == completed
