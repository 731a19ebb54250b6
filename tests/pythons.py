"""Runs the unit tests on other Pythons of this machine: the system's, often older than a user's, and the newest.

    python tests/pythons.py

Each gets a virtual environment .venv-VERSION, made once; tests/cluster/test_pythons.py also launches with it. A Python
that cannot be used here is named.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
MINORS = range(11, 20)  # from the oldest version that we support
OWN = (
    shutil.which("python3", path="/usr/bin:/bin") or ""
)  # the system's, whatever comes before it on PATH
Version = tuple[int, int, int]
Done = subprocess.CompletedProcess[str]


def main() -> int:
    """Find the Pythons, make their environments, run the tests."""
    found = dict(find_pythons())
    ours, own = sys.version_info[:3], version_of(OWN)
    # The unit tests run on this Python anyway.
    chosen = sorted({own, max(found, default=ours)} & found.keys() - {ours})
    if not chosen:
        print(f"no other Python from 3.{MINORS[0]} on is here: the tests run on one alone")
    with ThreadPoolExecutor() as pool:
        good = list(pool.map(lambda version: try_python(version, found[version]), chosen))
    return 0 if all(good) else 1


def find_pythons() -> Iterator[tuple[Version, str]]:
    """Yield every Python that is new enough: on PATH, the system's, and pyenv's, whose shims may lead nowhere."""
    names = [f"python3.{minor}" for minor in MINORS]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths = [shutil.which(name) for name in names]
    paths += [str(path) for name in names for path in pyenv.glob(f"*/bin/{name}")]
    for path in filter(None, [*paths, OWN]):
        version = version_of(path)
        if version >= (3, MINORS[0], 0):
            yield version, path


def version_of(path: str) -> Version:
    """Return a Python's version; (0, 0, 0) if it does not run."""
    done = run(path, "-c", "import sys; print(*sys.version_info[:3])")
    words = done.stdout.split() if done.returncode == 0 else []
    return (int(words[0]), int(words[1]), int(words[2])) if len(words) == 3 else (0, 0, 0)


def try_python(version: Version, python: str) -> bool:
    """Return whether the unit tests pass; True, with a message, if this Python cannot make an environment."""
    name = ".".join(map(str, version))
    venv = PROJECT_DIR / f".venv-{name}"
    if not is_ready(venv) and (made := run(python, "-m", "venv", venv)).returncode != 0:
        print(f"Python {name}: skipped, {python} makes no virtual environment: {said(made)[-1:]}")
        return True
    done = install(venv)
    if done.returncode == 0:
        done = run(venv / "bin" / "python", "-m", "pytest", "-q", "--tb=short", "tests/unit")
    shown = in_short(said(done)) if done.returncode == 0 else said(done)
    print("\n".join(f"Python {name}: {line}" for line in shown), flush=True)
    return done.returncode == 0


def in_short(lines: list[str]) -> list[str]:
    """Return the reasons of skipped tests, and the summary."""
    return [line for line in lines[:-1] if line.startswith("SKIPPED")] + lines[-1:]


def is_ready(venv: Path) -> bool:
    """Return whether everything is installed, and no older than pyproject.toml."""
    ready, pyproject = venv / "ready", PROJECT_DIR / "pyproject.toml"
    return ready.exists() and ready.stat().st_mtime >= pyproject.stat().st_mtime


def install(venv: Path) -> Done:
    """Install what the unit tests need, unless it is there."""
    if is_ready(venv):
        return run("true")
    done = run(venv / "bin" / "pip", "install", "--quiet", "--editable", ".[test]")
    if done.returncode == 0:
        (venv / "ready").touch()
    return done


def run(*argv: str | Path) -> Done:
    """Run one command in the checkout, to its end."""
    return subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, text=True, check=False)


def said(done: Done) -> list[str]:
    """Return all output lines of a command."""
    return [*done.stdout.strip().splitlines(), *done.stderr.strip().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
