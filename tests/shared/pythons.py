"""The Pythons of this machine that the host side must run on: ours, and the system's own where that is another."""

import shutil
import subprocess
import sys

import pytest

SHOW = "import platform; print(platform.python_version())"


def pythons():
    """Parameters for a test: paths of interpreters, each of another version."""
    found = [sys.executable]
    system = shutil.which("python3", path="/usr/bin:/bin")  # as `command -p -v python3`
    if system and version(system) not in (None, version(sys.executable)):
        found.append(system)
    return [pytest.param(path, id=version(path)) for path in found]


def version(path):
    """None where it is older than 3.11."""
    said = subprocess.run([path, "-I", "-c", SHOW], capture_output=True, text=True)
    number = said.stdout.strip()
    return number if tuple(map(int, number.split(".")[:2])) >= (3, 11) else None
