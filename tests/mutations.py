"""Tests the tests: mutates the product, one line at a time, and counts the mutations that a test catches.

    python tests/mutations.py [--only WORD] [--list]

The mutations are in tests/shared/mutants. Each names the one test that must fail with it, on the host or inside the
node image; only that test is run, in a copy of the tracked files. Tests on the host and in the image run in parallel.
The command fails if a mutation survives, if its text no longer occurs exactly once, or if its test cannot run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import NamedTuple

PROJECT_DIR = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT_DIR), str(PROJECT_DIR / "tests" / "shared")]

from mutants import MUTATIONS  # noqa: E402
from mutants.mutation import IN_THE_IMAGE, Mutation  # noqa: E402

from cluster.base.spec import IMAGE  # noqa: E402

IMAGES = {f"{IMAGE}-test": "tests/node", f"{IMAGE}-mutants": "tests/shared/mutants"}
"""Built one on top of the other; the last one is where tests run: the tests' own, with a compiler."""
CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_NICE", "SETUID", "SETGID", "KILL")
CODE = "/opt/gradwire"
NOT_COMPILED = 99
COMPILE = f"gcc -shared -fPIC -O2 -o {CODE}/node/wire/nfqueue/libfastpath.so {CODE}/{{}} || exit {NOT_COMPILED}; "
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line")
MOST_S = 120
"""A test that takes so long hangs: that is noticed, too."""
GREEN, RED, HUNG = 0, 1, 124
OUTCOMES = {GREEN: "SURVIVED", RED: "caught", HUNG: "caught: it hangs"}


class Outcome(NamedTuple):
    """The outcome of a mutation."""

    mutation: Mutation
    words: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether its test failed."""
        return self.words.startswith("caught")


class Tried(NamedTuple):
    """The exit code of a pytest run, and its last line."""

    exit_code: int
    said: str


class Host:
    """Runs tests of a copy of the checkout with this Python."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def run(self, tests: Sequence[str], mutated: str = "") -> Tried:
        """Run tests by their node ids; `mutated` is not needed, because the tests run in the mutated copy."""
        return self.start([*limit(), sys.executable, *PYTEST, *tests])

    def start(self, argv: Sequence[str]) -> Tried:
        """Run a command in the tree; keep the last line of its output for the case that something is wrong."""
        env = {**environment(), "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(argv, cwd=self.tree, env=env, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).strip().splitlines() or [""]
        return Tried(done.returncode, lines[-1])


class Image(Host):
    """Runs tests inside the node image, with one file of the copy in place of the image's own."""

    def run(self, tests: Sequence[str], mutated: str = "") -> Tried:
        """Run tests by their node ids, with the mutated file mounted from the copy."""
        mounts = {"tests/node": "/root/tests"} | ({mutated: f"{CODE}/{mutated}"} if mutated else {})
        names = [test.replace(IN_THE_IMAGE, "tests/", 1) for test in tests]
        compiled = COMPILE.format(mutated) if mutated.endswith(".c") else ""
        shell = f'{compiled}exec "$@"'
        command = ["sh", "-c", shell, "sh", *limit(), "python3", *PYTEST, *names]
        return self.start([*self._docker(mounts), *command])

    def _docker(self, mounts: Mapping[str, str]) -> list[str]:
        rights = ["--cap-drop", "ALL", *(f"--cap-add={name}" for name in CAPABILITIES)]
        volumes = [f"--volume={self.tree / here}:{there}:ro" for here, there in mounts.items()]
        return ["docker", "run", "--rm", "--init", *rights, *volumes, list(IMAGES)[-1]]


def main() -> int:
    """Try all or the selected mutations; print a line for each, and the number caught."""
    args = parse_args()
    chosen = [m for m in MUTATIONS if args.only in m.name]
    if args.list:
        print("\n".join(f"{m.name:<44} {m.file:<36} {m.test}" for m in chosen))
        return 0
    outcomes = list(try_all(chosen))
    survived = sum(not outcome.is_caught for outcome in outcomes)
    print(f"{len(outcomes) - survived} caught, {survived} survived")
    return 1 if survived or not outcomes else 0


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="those with it in their name")
    parser.add_argument("--list", action="store_true", help="say which there are, and end")
    return parser.parse_args()


def try_all(mutations: Sequence[Mutation]) -> Iterator[Outcome]:
    """Try the host's and the image's mutations in parallel, each group in a copy of its own."""
    on_host = [mutation for mutation in mutations if not mutation.is_in_the_image]
    in_image = [mutation for mutation in mutations if mutation.is_in_the_image]
    if in_image:
        build_images()
    stop = Event()
    with ThreadPoolExecutor() as pool:
        places = {Host: on_host, Image: in_image}
        runs = [pool.submit(try_here, place, some, stop) for place, some in places.items() if some]
        try:
            for run in runs:
                yield from run.result()
        finally:  # on Ctrl-C, running tests end by themselves within seconds
            stop.set()


def build_images() -> None:
    """Build the images; the node image's own verb checks whether that one is up to date."""
    build([sys.executable, "-m", "cluster.image"])
    base = IMAGE
    for image, folder in IMAGES.items():
        argument = f"IMAGE={base}"
        build(["docker", "build", "--quiet", "--tag", image, "--build-arg", argument, folder])
        base = image


def build(argv: Sequence[str]) -> None:
    """Run a command; exit with its error if it fails."""
    done = subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}{' '.join(argv)} ended with exit code {done.returncode}")


def try_here(place: type[Host], mutations: Sequence[Mutation], stop: Event) -> list[Outcome]:
    """Try the mutations of one place, one after another, until `stop` is set."""
    with copied_checkout() as tree:
        bench = place(tree)
        red = dict(red_files(bench, mutations))
        return [
            report(try_one(bench, mutation, red)) for mutation in mutations if not stop.is_set()
        ]


def red_files(bench: Host, mutations: Iterable[Mutation]) -> Iterator[tuple[str, str]]:
    """Yield the files whose tests fail without any mutation, and their output: their mutations cannot be judged."""
    by_file: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        by_file.setdefault(mutation.test_file, []).append(mutation)
    for file, some in by_file.items():
        compiled = next((one.file for one in some if one.file.endswith(".c")), "")
        tried = bench.run(sorted({one.test for one in some}), compiled)
        if tried.exit_code != GREEN:
            yield file, tried.said


def try_one(bench: Host, mutation: Mutation, red: Mapping[str, str]) -> Outcome:
    """Mutate a file, run the test, and restore the file."""
    began, path = time.monotonic(), bench.tree / mutation.file
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    after = mutation.apply(before)
    if after is None:
        return Outcome(mutation, f"its text is no longer once in {mutation.file}", 0.0)
    if mutation.test_file in red:
        return Outcome(mutation, f"red without it: {red[mutation.test_file]}", 0.0)
    path.write_text(after, encoding="utf-8")
    try:
        tried = bench.run([mutation.test], mutation.file)
    finally:
        path.write_text(before, encoding="utf-8")
    words = OUTCOMES.get(tried.exit_code, f"its test did not run: {tried.said}")
    return Outcome(mutation, words, time.monotonic() - began)


def report(outcome: Outcome) -> Outcome:
    """Print a line of the table as soon as the outcome is known."""
    mutation = outcome.mutation
    print(
        f"{mutation.name:<44} {outcome.seconds:5.1f} s  {outcome.words:<10} {mutation.test}",
        flush=True,
    )
    return outcome


@contextmanager
def copied_checkout() -> Iterator[Path]:
    """Copy the tracked files as they are now into a folder, which is removed at the end."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT_DIR, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="gradwire-mutations-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (PROJECT_DIR / name).is_file():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROJECT_DIR / name, target)
        yield Path(folder)


def limit() -> list[str]:
    """Return a command prefix that kills the command and its children if it hangs."""
    return ["timeout", "--kill-after=5", str(MOST_S)]


def environment() -> dict[str, str]:
    """Return our environment without variables that would lead a test to this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    sys.exit(main())
