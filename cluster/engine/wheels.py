"""Fetches the node image's Python packages with this machine's pip, to be sent with the build context.

The build itself then needs Debian's packages alone, even if PyPI is behind a mirror or a private certificate that
containers do not know. pip, and then this module, checks each wheel against its checksums in requirements-*.txt.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cluster.base.errors import ClusterError

IMAGE_PYTHON = "3.13"  # Debian 13's
IMAGE_PLATFORM = "manylinux_2_28_{}"  # of wheels with native code; Debian 13's glibc is newer
PIP_TIMEOUT_S = 300
CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def ensure_wheels(
    requirements: Path, architecture: str, report: Callable[[str], None]
) -> list[Path]:
    """Ensure that this user's cache has a wheel for each line of a requirements file, downloading missing ones.

    Args:
        requirements: one line per package: name, version and checksums, one per architecture that has its own wheel.
        architecture: the image's: x86_64, aarch64.
        report: takes one line of progress.

    Returns:
        The wheels.

    Raises:
        ClusterError: pip could not fetch them.
    """
    found = _find(requirements, architecture)
    if not all(found.values()):
        report("fetching Python packages of the image")
        _download(requirements, architecture, cache_folder())
        found = _find(requirements, architecture)
    if missing := [line for line, wheels in found.items() if not wheels]:
        name = missing[0].split()[0]
        raise ClusterError(
            f"pip left no wheel of {name} with one of its checksums", see=str(requirements)
        )
    return sorted(path for wheels in found.values() for path in wheels)


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/gradwire/wheels; ~/.cache if that variable is not set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gradwire" / "wheels"


def _find(requirements: Path, architecture: str) -> dict[str, list[Path]]:
    """Return the cached wheels by the requirements line that they satisfy."""
    fitting = [
        path
        for path in cache_folder().glob("*.whl")
        if path.stem.endswith(("-any", f"_{architecture}"))
    ]
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in fitting}
    return {
        line: [digests[each] for each in wanted if each in digests]
        for line in requirements.read_text().splitlines()
        if (wanted := CHECKSUM.findall(line))
    }


def _download(requirements: Path, architecture: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes")
    target = ("--python-version", IMAGE_PYTHON, "--platform", IMAGE_PLATFORM.format(architecture))
    argv = [sys.executable, "-m", "pip", "download", *words, "--only-binary", ":all:", *target]
    argv += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"pip took more than {PIP_TIMEOUT_S} s", " ".join(argv)) from None
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-5:]
        raise ClusterError("\n".join(["pip could not fetch:", *tail]), " ".join(argv))
