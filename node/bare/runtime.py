"""Runs containers with runc, each watched by a conmon: it keeps the output and the exit code.

Both are Debian's, of the image. The state of all containers is in RUNTIME, so every command finds what earlier ones
have started.
"""

import fcntl
import json
import os
import resource
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from node.bare.folders import ENDS, RUNC_ROOT, NodeFolder

RUNC = ("runc", f"--root={RUNC_ROOT}")
MOST_LOG_BYTES = 20 * 2**20  # as of nodes in Docker
TIMEOUT_S = 60.0
# The socket must be descriptor 3 of a program that finds its own process id in LISTEN_PID: sd_listen_fds(3).
INHERIT = 'exec 3<&"$1"; shift; LISTEN_PID=$$ exec "$@"'
IN_BETWEEN = ("unshare", "--net")  # node.bare.device says what is in that network namespace
FIRST_FREE_FD = 10  # above those of that protocol


class HostError(Exception):
    """The host cannot do what an order asks; the message says what failed."""


def create(folder: NodeFolder, ssh_port: int) -> int:
    """Create a container from its bundle, without starting it; return the process id of its first process.

    Its sshd inherits a socket of the host's network namespace, which listens at `ssh_port`. Its conmon has a network
    namespace of its own.

    Raises:
        HostError: the port is taken, or runc refuses.
    """
    for path in (RUNC_ROOT, ENDS, folder.persistent):
        path.mkdir(parents=True, exist_ok=True)
    for path in (folder.end, folder.oom, folder.pid_file, folder.conmon_pid_file):
        path.unlink(missing_ok=True)
    with _listen(ssh_port) as listener, _pipe() as (reader, writer):
        # A login may open few files only, and nodes inherit that; more than the hard limit needs SYS_RESOURCE.
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        started = subprocess.Popen(
            [*IN_BETWEEN, "sh", "-c", INHERIT, "sh", str(listener.fileno()), *_conmon(folder)],
            env=os.environ | {"_OCI_SYNCPIPE": str(writer), "LISTEN_FDS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writer, listener.fileno()),
        )
        os.close(writer)
        answer = _answer(reader)
        started.wait(TIMEOUT_S)
    pid = int(answer.get("data", answer.get("pid", -1)))
    if pid <= 0:
        raise HostError(
            f"{folder.name}: {' '.join(str(answer.get('message', 'runc failed')).split())}"
        )
    return pid


def start(folder: NodeFolder) -> None:
    """Start a container that was created."""
    _runc("start", folder.name)
    folder.started.touch()


def states() -> dict[str, str]:
    """Return the state of each container, by name, as runc says it: created, running, paused, stopped.

    Raises:
        HostError: runc does not say.
    """
    RUNC_ROOT.mkdir(parents=True, exist_ok=True)
    rows = json.loads(_runc("list", "--format", "json"))
    return {str(row["id"]): str(row["status"]) for row in rows or ()}


def delete(name: str) -> None:
    """End a container and forget it; nothing happens if there is none. Raises HostError."""
    try:
        _runc("delete", "--force", name)
    except HostError as error:
        if "does not exist" not in str(error):
            raise


def unpause(name: str) -> None:
    """Let a paused container go on."""
    _runc("resume", name)


def update(name: str, resources: dict[str, object]) -> None:
    """Change the limits of a container."""
    _runc("update", "--resources", "-", name, stdin=json.dumps(resources))


def _runc(*words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [*RUNC, *words], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise HostError(f"runc {words[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def _conmon(folder: NodeFolder) -> list[str]:
    return [
        *("conmon", "--api-version", "1", "--cid", folder.name, "--cuuid", folder.name),
        *("--name", folder.name, "--runtime", shutil.which("runc") or "runc"),
        *(word for flag in RUNC[1:] for word in ("--runtime-arg", flag)),
        *("--bundle", str(folder.path), "--container-pidfile", str(folder.pid_file)),
        *("--conmon-pidfile", str(folder.conmon_pid_file), "--exit-dir", str(ENDS)),
        *("--persist-dir", str(folder.persistent), "--log-path", f"k8s-file:{folder.log}"),
        *("--log-size-max", str(MOST_LOG_BYTES), "--full-attach", "--replace-listen-pid"),
    ]


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise HostError(f"port {port} on 127.0.0.1 is taken: {error.strerror}") from error


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yield both ends of a pipe; the caller closes the one for writing."""
    reader, lower = os.pipe()
    writer = fcntl.fcntl(lower, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
    os.close(lower)
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _answer(reader: int) -> dict[str, Any]:
    """Read what conmon says on its pipe: the process id as `data`, or a message; empty if it says nothing."""
    ready, _, _ = select.select([reader], [], [], TIMEOUT_S)
    if not ready:
        return {"message": f"no answer within {TIMEOUT_S:.0f} s"}
    with os.fdopen(os.dup(reader)) as file:
        line = file.readline()
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
