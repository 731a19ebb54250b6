"""Python packages of the node image: fetched by this Python's pip, which knows this network, and sent with a build.

So the build itself wants Debian's packages alone, also where PyPI is behind a mirror or a certificate of one's own that
containers do not know. Each is held against the checksum in requirements-image.txt, by pip and again here.
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
PIP_TIMEOUT_S = 300
CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def ensure_wheels(requirements: Path, report: Callable[[str], None]) -> list[Path]:
    """Have a wheel for each line of a requirements file, in this user's cache.

    Args:
        requirements: a name, a version and a checksum a line.
        report: takes one line of progress.

    Returns:
        The wheels.

    Raises:
        ClusterError: pip could not get them.
    """
    wanted = set(CHECKSUM.findall(requirements.read_text()))
    folder = cache_folder()
    found = _known(folder, wanted)
    if found.keys() != wanted:
        report("fetching Python packages of the image")
        _download(requirements, folder)
        found = _known(folder, wanted)
    if missing := wanted - found.keys():
        raise ClusterError(f"pip left no wheel with checksum {min(missing)}", see=str(requirements))
    return sorted(found.values())


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/gradwire/wheels, in ~/.cache where that is not set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gradwire" / "wheels"


def _known(folder: Path, wanted: set[str]) -> dict[str, Path]:
    """Checksum -> wheel, of those that are wanted."""
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.glob("*.whl")}
    return {digest: path for digest, path in digests.items() if digest in wanted}


def _download(requirements: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes")
    target = ("--only-binary", ":all:", "--python-version", IMAGE_PYTHON)
    argv = [sys.executable, "-m", "pip", "download", *words, *target]
    argv += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"pip took more than {PIP_TIMEOUT_S} s", " ".join(argv)) from None
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-5:]
        raise ClusterError("\n".join(["pip could not fetch:", *tail]), " ".join(argv))
