"""The compose command, and `compose up` at work beside us: it gets ready while we look at the engine."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from cluster.errors import ClusterError, PrerequisiteError
from cluster.spec import PROJECT_DIR, ClusterSpec

PLUGIN_DIRS = tuple(
    Path(folder, "docker", "cli-plugins")
    for folder in ("/usr/local/lib", "/usr/local/libexec", "/usr/lib", "/usr/libexec")
)


class ComposeUp:
    """One call of compose for one cluster; its `with` block ends it, whatever happens.

    It reads its document from standard input, and so can be started before anybody knows what it shall make:
    docker-compose 1.29 takes half a second to get ready. `has_begun` says whether it has been told.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[str] | None = None
        self.has_begun = False
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - __exit__ closes it

    def get_ready(self) -> None:
        """Start it where there is no such cluster yet; whether it can be had matters only once there is work for it."""
        if not ClusterSpec(self._name).state_dir.exists():
            with suppress(PrerequisiteError):
                self._start()

    def give(self, document: str) -> None:
        """Let it make what the document says.

        Raises:
            PrerequisiteError: there is no compose.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        self.has_begun = True
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


def up_argv(command: list[str], name: str, path: str = "-") -> list[str]:
    """The compose call that makes or reconciles the containers; `-` is the document on standard input."""
    return [
        *command,
        *("--project-name", name, "--project-directory", str(PROJECT_DIR), "--file", path),
        *("up", "--detach", "--no-build", "--remove-orphans"),
    ]


def compose_command() -> list[str]:
    """`docker compose` where the plugin is there, else `docker-compose`.

    The plugin is looked for in the folders where docker itself usually looks: to ask each command for its version
    takes up to half a second.

    Raises:
        PrerequisiteError: neither is there; says how to install it.
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
    argv = ["docker", "compose", "version"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def compose_failure(stderr: str, spec: ClusterSpec) -> ClusterError:
    """Compose's complaint as one of ours, with what to do about it."""
    text = stderr.lower()
    last = [line for line in stderr.strip().splitlines() if line.strip()][-3:]
    message = f"compose could not bring {spec.name!r} up: {' / '.join(last)}"
    if "port is already allocated" in text or "address already in use" in text:
        return ClusterError(message, "free the port, or another --slot")
    if "pool overlaps" in text or "invalid pool request" in text:
        return ClusterError(message, f"another network holds {spec.subnet}: another --slot")
    if "no space left" in text:
        return ClusterError(message, "docker system prune, or a larger disk")
    return ClusterError(message, "python -m cluster.doctor")
