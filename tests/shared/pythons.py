"""The Pythons of this machine on which the host side must run: ours, and the system's if its version differs."""

import shutil
import subprocess
import sys

import pytest

SHOW = "import platform; print(platform.python_version())"


def pythons():
    """Return parameters for a test: paths of interpreters, each of a different version."""
    found = [sys.executable]
    system = shutil.which("python3", path="/usr/bin:/bin")  # like `command -p -v python3`
    if system and version(system) not in (None, version(sys.executable)):
        found.append(system)
    return [pytest.param(path, id=version(path)) for path in found]


def version(path):
    """Return the version of an interpreter; None if it is older than 3.11."""
    said = subprocess.run([path, "-I", "-c", SHOW], capture_output=True, text=True)
    number = said.stdout.strip()
    return number if tuple(map(int, number.split(".")[:2])) >= (3, 11) else None
