"""Checks for the programs that `make` needs, and names the command that installs what is missing.

    python3 cluster/cli/prerequisites.py

Runs on any Python from 3.6 on and imports none of our modules: the virtual environment does not exist yet. Exit 2 if
something is missing.
"""

import shutil
import subprocess
import sys
from typing import Optional, Tuple  # an old Python must get far enough to report its version

Missing = Optional[Tuple[str, str]]
TIMEOUT_S = 60  # for a program to print its version


def main() -> int:
    """Check all prerequisites, print what is missing; return the exit code."""
    missing = [problem for problem in (python(), venv(), docker(), compose()) if problem]
    for problem, remedy in missing:
        sys.stderr.write(f"missing: {problem}\n  try: {remedy}\n")
    return 2 if missing else 0


def python() -> Missing:
    """Check for Python 3.11 or newer."""
    if sys.version_info >= (3, 11):
        return None
    version = ".".join(str(part) for part in sys.version_info[:2])
    return f"Python 3.11 (this is {version})", "make PYTHON=python3.11 ..."


def venv() -> Missing:
    """Check for the venv module, which Debian packages separately."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return "Python's venv module", "sudo apt-get install python3-venv"
    return None


def docker() -> Missing:
    """Check for the docker command, and for an engine that answers this user."""
    if shutil.which("docker") is None:
        return "Docker", "sudo apt-get install docker.io, or follow Docker's own installation guide"
    code, said = _ask(["docker", "version"])
    if code == 0:
        return None
    if "permission denied" in said.lower():
        return "the permission to use Docker", "sudo usermod -aG docker $USER, then log in again"
    return "a Docker engine that answers", "sudo systemctl start docker"


def compose() -> Missing:
    """Check for Compose, as docker's plugin or as its own command."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and _ask([*command, "version"])[0] == 0:
            return None
    remedy = "sudo apt-get install docker-compose-v2 (Ubuntu) or docker-compose (Debian)"
    return "Docker Compose", remedy


def _ask(command: "list[str]") -> "Tuple[int, str]":
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return 1, "%s does not answer" % command[0]
    return done.returncode, done.stdout.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
