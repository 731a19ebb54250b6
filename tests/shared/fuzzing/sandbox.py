"""A sandbox for odd inputs: a folder of its own, no Docker engine, and checks that must hold after each input.

A verb is called in this process, as `python -m` would. It must end with 0, 1 or 2 within MOST_S seconds and
MOST_MORE_BYTES of memory, name what is wrong in one line, and write only into the folder.
"""

import gc
import io
import os
import resource
import shutil
import signal
import tempfile
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import cluster.base.spec
import cluster.engine.compose_up
import cluster.launch
import cluster.run.runner
import cluster.sweep
from cluster.base.paths import CODE_DIR, STATE_FOLDER

MOST_S = 20.0
MOST_MORE_BYTES = 2 << 30
MOST_ERROR_CHARACTERS = 4000
MOST_DETAIL_LINES = 70  # `  try: …`, `  node3: …`
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WATCHED = (".", "runs", STATE_FOLDER, "compose/profiles", "examples", "tests", "node", "cluster")


class TookTooLong(BaseException):
    """Not an Exception, so that the code under test does not catch it."""


class Ended(NamedTuple):
    """The result of a verb."""

    exit_code: int
    out: str
    err: str


class Sandbox:
    """The folder: `work` is the current one, `runs` and `tmp` are beside it, `victim` must stay unchanged."""

    def __init__(self, top):
        self.top, self.work, self.runs = top, top / "work", top / "runs"
        self.results: dict[str, int] = {}
        for folder in (self.work, self.runs, top / "tmp"):
            folder.mkdir()
        (top / "victim").write_text("as it was")

    def count(self, word):
        """Count the result of an example, for the table at the end."""
        self.results[word] = self.results.get(word, 0) + 1

    def clean(self):
        """Restore the state before an example; the current folder stays the same one."""
        shutil.rmtree(self.top / STATE_FOLDER, ignore_errors=True)
        for folder in (self.work, self.runs, self.top / "tmp"):
            for path in folder.iterdir():
                path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)

    def check_untouched(self):
        """Check that nothing was written outside of the allowed folders."""
        found = {path.name for path in self.top.iterdir()} - {STATE_FOLDER, "cache"}
        assert found == {"victim", "work", "runs", "tmp"}, f"files outside: {found}"
        assert (self.top / "victim").read_text() == "as it was"
        left = [path.name for path in (self.top / "tmp").iterdir()]
        assert not left, f"temporary files stay behind: {left}"


@contextmanager
def sandbox():
    """Make a Sandbox the current folder of this process, without a reachable engine; restore everything at the end."""
    before, here = _seen(), Path.cwd()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with tempfile.TemporaryDirectory(prefix="gradwire-fuzz-") as name:
        place = Sandbox(Path(name).resolve())
        os.chdir(place.work)
        try:
            with (
                patch.dict(os.environ, _environment(place)),
                _elsewhere(place),
                bounded_memory(),
                warnings.catch_warnings(),
            ):
                # Docker's client leaves the socket on which no engine answered to the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                yield place
                gc.collect()
        finally:
            os.chdir(here)
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert _seen() == before, "something was written into the checkout"


def _seen():
    """Return the files of the checkout in the places that a stray path could lead to."""
    folders = [CODE_DIR / name for name in WATCHED if (CODE_DIR / name).is_dir()]
    return {path for folder in folders for path in folder.iterdir() if path.name[0] != "."}


def _environment(place):
    return {
        "DOCKER_HOST": f"unix://{place.top}/no.sock",
        "HOME": str(place.top / "tmp"),
        "XDG_CACHE_HOME": str(place.top / "cache"),
        "TMPDIR": str(place.top / "tmp"),
    }


@contextmanager
def _elsewhere(place):
    """Keep runs, records and keys in the sandbox instead of the checkout."""
    homes = (cluster.launch, cluster.sweep, cluster.run.runner)
    patches = [patch.object(home, "RUNS_DIR", place.runs) for home in homes]
    patches += [patch.object(cluster.sweep, "SWEEPS_DIR", place.runs / "sweeps")]
    patches += [
        patch.object(home, "PROJECT_DIR", place.top)
        for home in (cluster.base.spec, cluster.engine.compose_up)
    ]
    patches += [patch.object(tempfile, "tempdir", str(place.top / "tmp"))]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


@contextmanager
def bounded_memory():
    """Limit this process to MOST_MORE_BYTES more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(
        Path("/proc/self/statm").read_text().split()[5]
    )  # data and stack: script engines reserve more address space than they use
    most = pages * resource.getpagesize() + MOST_MORE_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def bounded_time():
    """Raise TookTooLong if the block takes longer than MOST_S."""

    def end(number, frame):
        raise TookTooLong(f"it takes longer than {MOST_S:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(main, words):
    """Call a verb with these arguments."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in "oe")
    with bounded_time(), redirect_stdout(out), redirect_stderr(err):
        try:
            exit_code = main(list(words))
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
    gc.unfreeze()  # run_verb freezes all objects, as its process normally ends
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Ended(exit_code, *texts)


def check(ended, most_characters=MOST_ERROR_CHARACTERS):
    """Check what must hold of every verb, for any input."""
    said = ended.err[-2 * most_characters :]
    assert "Traceback" not in ended.err and "bug in gradwire" not in ended.err, said
    assert ended.exit_code in (0, 1, 2), f"exit code {ended.exit_code}: {said}"
    if ended.exit_code:
        check_words(_error_of(ended.err), most_characters)


def _error_of(err):
    """Return the text from the line that names the error."""
    found = [line for line in err.splitlines(keepends=True) if line.startswith("error: ")]
    assert len(found) == 1, f"{len(found)} errors: {err!r}"
    return err[err.index(found[0]) + len("error: ") :]


def check_words(words, most_characters=MOST_ERROR_CHARACTERS):
    """Check that an error is one clear line, with indented details below it."""
    head, *more = words.rstrip("\n").split("\n")
    assert head.strip(), f"no word of what is wrong: {words!r}"
    assert len(words) <= most_characters, f"{len(words)} characters: {words[:most_characters]}"
    assert len(more) <= MOST_DETAIL_LINES and all(line.startswith("  ") for line in more), words


def said_of(error):
    """Check the text of an expected error; return the error's class name."""
    check_words(str(error))
    return type(error).__name__
