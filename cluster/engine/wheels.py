"""Python packages of the node image: fetched by this Python's pip, which knows this network, and sent with a build.

So the build itself wants Debian's packages alone, also where PyPI is behind a mirror or a certificate of one's own that
containers do not know. Each is held against its checksums in requirements-*.txt, by pip and again here.
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
IMAGE_PLATFORM = "manylinux_2_28_{}"  # of wheels that know a processor; Debian 13's glibc is newer
PIP_TIMEOUT_S = 300
CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def ensure_wheels(
    requirements: Path, architecture: str, report: Callable[[str], None]
) -> list[Path]:
    """Have a wheel for each line of a requirements file, in this user's cache.

    Args:
        requirements: a name, a version and checksums a line, one for each architecture that has a wheel of its own.
        architecture: of the image: x86_64, aarch64.
        report: takes one line of progress.

    Returns:
        The wheels.

    Raises:
        ClusterError: pip could not get them.
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
    """$XDG_CACHE_HOME/gradwire/wheels, in ~/.cache where that is not set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gradwire" / "wheels"


def _find(requirements: Path, architecture: str) -> dict[str, list[Path]]:
    """The wheels in the cache, by the line that wants them."""
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
