"""`compose up` at work beside us: it gets ready while we look at the engine, and works while we knock at the nodes."""

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Self

from cluster.compose import compose_command, compose_failure, up_argv
from cluster.errors import PrerequisiteError
from cluster.spec import PROJECT_DIR, ClusterSpec


class ComposeUp:
    """One call of compose for one cluster; its `with` block ends it, whatever happens.

    It reads its document from standard input, and so can be started before anybody knows what it shall make:
    docker-compose 1.29 takes half a second to get ready.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[str] | None = None
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - __exit__ closes it

    def get_ready(self) -> None:
        """Start it, if it is there at all; whether it is matters only once there is work for it."""
        with suppress(PrerequisiteError):
            self._start()

    def give(self, document: str) -> None:
        """Let it make what the document says.

        Raises:
            PrerequisiteError: there is no compose.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as stdin:  # it has ended: `finish` says why
            stdin.write(document)

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Whether it has done its work.

        Raises:
            ClusterError: it failed; in its own words, with what to do about it.
        """
        assert self._process is not None
        if self._process.poll() is None:
            return False
        if self._process.returncode != 0:
            self._complaints.seek(0)
            raise compose_failure(self._complaints.read(), spec)
        return True

    def finish(self, spec: ClusterSpec) -> None:
        """Wait until it has done its work; raises as `has_ended`."""
        assert self._process is not None
        self._process.wait()
        self.has_ended(spec)

    def end(self) -> None:
        """End it, at once, if it is still at work; what it has made stays."""
        if self._process is not None:
            with suppress(BrokenPipeError), self._process:  # closes its input, waits for its end
                _terminate_group(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._complaints:
            self.end()

    def _start(self) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C is ours to handle, we end compose before we clean up.
        # docker-compose 1.29 begins the paths of a document on standard input where it stands, whatever
        # --project-directory says: elsewhere nodes would find an empty folder for their keys.
        self._process = subprocess.Popen(
            up_argv(compose_command(), self._name),
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
        )
        return self._process


def _terminate_group(process: subprocess.Popen[str]) -> None:
    """`docker compose` is two processes, and older ones do not hand a signal on."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
