"""Runs `compose up` in the background: it starts early and reads its document when that is known."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self, TextIO

from cluster.base.errors import ClusterError, PrerequisiteError, SlotTaken
from cluster.base.paths import PROJECT_DIR
from cluster.base.processes import end_with_parent, run_bounded
from cluster.base.spec import MAX_NODES, ClusterSpec, name_flag, project_name

PLUGIN_DIRS = tuple(
    Path(folder, "docker", "cli-plugins")
    for folder in ("/usr/local/lib", "/usr/local/libexec", "/usr/lib", "/usr/libexec")
)
# Otherwise Compose would read .env in the user's working folder, and fail at a line that it does not understand.
NO_VARIABLES = Path(__file__).with_name("empty.env")
TIMEOUT_S, TIMEOUT_PER_NODE_S = 300.0, 10.0  # generous: for an engine that hangs or has died
END_TIMEOUT_S = 15.0  # after SIGTERM; compose first completes its engine calls in flight

NO_LIMIT = {"COMPOSE_PARALLEL_LIMIT": str(2 * MAX_NODES)}
"""Lets Compose work on all nodes at once.

docker-compose 1.29 takes its limit, 64 by default, twice per node, the second time while it holds the first: from 65
nodes on it may hang (docker/compose issue 5864). Compose v2 can hang, too, if a user set a low limit (issue 10532).
"""

OLD_COMPOSE = "KeyError: 'ContainerConfig'"
"""The error of docker-compose 1.29 when it must recreate a container on engine 25 or newer."""


class OldCompose(ClusterError):
    """Compose is too old for the engine: it can create containers, but not change any."""


class ComposeUp:
    """One call of compose for one cluster; leaving its `with` block always ends the process.

    Compose reads its document from standard input, so it can start before the document is known: docker-compose 1.29
    takes half a second to get ready.
    """

    is_local = True
    """Whether the engine is on this machine: then nodes mount keys from our folders, and compose starts them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[str] | None = None
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - __exit__ closes it

    where = ""
    """The host as messages name it; empty: this machine."""
    network = ""
    """The name of the nodes' network if something else creates it; empty: compose does."""

    def prepare(self, spec: ClusterSpec) -> None:
        """Create what the document relies on: nothing here, because compose creates everything."""

    def get_ready(self) -> None:
        """Start compose early if the cluster does not exist yet."""
        if not ClusterSpec(self._name).state_dir.exists():
            self.start_early()

    def start_early(self) -> None:
        """Start compose before its document is known; a missing compose is reported only by `give`."""
        with suppress(PrerequisiteError):
            self._start()

    def give(self, document: str) -> None:
        """Send compose the document, starting it if necessary; returns at once, whether or not it reads.

        Raises:
            PrerequisiteError: compose is not installed.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        # A document of many nodes is larger than a pipe. The thread owns the pipe: `end` must not wait to close it.
        stdin, process.stdin = process.stdin, None
        threading.Thread(target=_feed, args=(stdin, document), daemon=True).start()

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Return whether compose has completed.

        Raises:
            ClusterError: it failed; carries its message and a hint.
        """
        assert self._process is not None
        if self._process.poll() is None:
            return False
        if self._process.returncode != 0:
            self._complaints.seek(0)
            raise compose_failure(self._complaints.read(), spec, self.where)
        return True

    def finish(self, spec: ClusterSpec) -> None:
        """Wait until compose has completed.

        Raises:
            ClusterError: it failed, as in `has_ended`, or timed out.
        """
        assert self._process is not None
        timeout_s = TIMEOUT_S + TIMEOUT_PER_NODE_S * spec.size
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            words = f"compose has not brought {spec.name!r} up{_on(self.where)} within {timeout_s:.0f} s"
            raise ClusterError(words, "python -m cluster.doctor") from None
        self.has_ended(spec)

    def end(self) -> None:
        """End compose now if it is still running; the containers that it has created stay."""
        if self._process is not None:
            with suppress(BrokenPipeError), self._process:  # closes its input
                _end_group(self._process)

    def _forget(self) -> None:
        """Reset the state after compose has ended, so that it can be run again."""
        self._process = None
        self._complaints.seek(0)
        self._complaints.truncate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._complaints:
            self.end()

    def _environment(self) -> dict[str, str]:
        """Return the environment of compose."""
        return os.environ | NO_LIMIT

    def _start(self) -> subprocess.Popen[str]:
        # In its own session, because we handle Ctrl-C ourselves: we end compose before we clean up.
        # In PROJECT_DIR, because docker-compose 1.29 resolves the paths of a document on standard input against its
        # working directory and ignores --project-directory: elsewhere nodes would mount an empty folder as their keys.
        self._process = subprocess.Popen(
            up_argv(compose_command(), self._name, starts=self.is_local),
            cwd=PROJECT_DIR,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,  # otherwise it would go on creating nodes without us
        )
        return self._process


def _feed(stdin: TextIO, document: str) -> None:
    with suppress(BrokenPipeError), stdin:  # it has ended: `finish` says why
        stdin.write(document)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End the process group: `docker compose` is two processes, and older ones do not forward signals."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)


def up_argv(command: list[str], name: str, path: str = "-", *, starts: bool = True) -> list[str]:
    """Return the compose command that creates or reconciles containers, and `starts` them; `-` is standard input."""
    return [
        *command,
        *(
            "--project-name",
            project_name(name),
            "--project-directory",
            str(PROJECT_DIR),
            "--env-file",
            str(NO_VARIABLES),
            "--file",
            path,
        ),
        *("up", "--detach" if starts else "--no-start", "--no-build"),
    ]


def compose_command() -> list[str]:
    """Return `docker compose` if the plugin is installed, else `docker-compose`.

    Looks for the plugin in docker's usual folders first, because asking each command for its version takes up to half
    a second.

    Raises:
        PrerequisiteError: neither is installed; says how to install it.
    """
    home = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    places = [folder / "docker-compose" for folder in (home / "cli-plugins", *PLUGIN_DIRS)]
    has_docker = shutil.which("docker") is not None
    if has_docker and any(os.access(place, os.X_OK) for place in places):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if has_docker and _is_plugin_elsewhere():
        return ["docker", "compose"]
    raise PrerequisiteError(
        "no Docker Compose here: neither `docker compose` nor `docker-compose`",
        "apt-get install docker-compose-v2 (Ubuntu) or docker-compose (Debian)",
    )


def _is_plugin_elsewhere() -> bool:
    return run_bounded(["docker", "compose", "version"]).returncode == 0


def _on(where: str) -> str:
    return f" on {where}" if where else ""


def compose_failure(stderr: str, spec: ClusterSpec, where: str = "") -> ClusterError:
    """Return compose's error message as a ClusterError with a hint; `where`: the host, empty on this machine."""
    text = stderr.lower()
    last = [line for line in stderr.strip().splitlines() if line.strip()][-3:]
    message = f"compose could not bring {spec.name!r} up{_on(where)}: {' / '.join(last)}"
    if "port is already allocated" in text or "address already in use" in text:
        return SlotTaken(message, "free the port, or use another --slot")
    if "pool overlaps" in text or "invalid pool request" in text:
        return SlotTaken(message, f"use another --slot: another network holds {spec.subnet}")
    if OLD_COMPOSE in stderr:
        return OldCompose(
            f"compose could not change nodes of {spec.name!r}: docker-compose 1 cannot, with an engine as new as this",
            f"apt-get install docker-compose-v2, or first: python -m cluster.down{name_flag(spec.name)}",
        )
    if "could not select device driver" in text:
        without = f"without GPUs: python -m cluster.up{name_flag(spec.name)} --gpus none"
        return ClusterError(
            message, f"install the NVIDIA container toolkit on this machine, or {without}"
        )
    if "no space left" in text:
        return ClusterError(message, "docker system prune, or use a larger disk")
    return ClusterError(message, "python -m cluster.doctor")
