"""An SSH connection to a host, and ports and sockets of the host that it leads to.

The user's own ssh client makes it: keys, agent, known hosts, jumps and aliases are as he has them. What it leads to are
Unix sockets in a folder that only this user can enter: no port of this machine is opened, and two commands at a time do
not meet. The client ends with us, also when we are killed.
"""

import shutil
import socket
import subprocess
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from cluster.base.errors import ClusterError, PrerequisiteError
from cluster.base.parent_death import end_with_parent
from cluster.base.spec import Node
from cluster.base.subprocesses import run_bounded
from cluster.hosts.hosts_file import Host
from cluster.hosts.socket_folder import make_socket_folder

OPEN_TIMEOUT_S = 30.0
LOOK_S = 0.02
END_TIMEOUT_S = 5.0
ENGINE_SOCKET, CONTROL_SOCKET = "engine", "control"
OPTIONS = {
    "BatchMode": "yes",  # nobody is there to type a password
    "StrictHostKeyChecking": "yes",
    "ExitOnForwardFailure": "yes",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "5",  # a host that is silent for 15 s is lost, as a node is
    "ServerAliveCountMax": "3",
    "ControlPersist": "no",
}


class Tunnel:
    """One SSH connection to a host, open until this object ends, or the thread that made it.

    Args:
        host: where to.
        waits: until we are logged in; else `wait` does that.

    Raises:
        PrerequisiteError: no ssh client here, or the host does not let us in; in the client's own words.
    """

    def __init__(self, host: Host, *, waits: bool = True) -> None:
        self.host = host
        self._folder = make_socket_folder()
        self._lock = threading.Lock()
        self._doors: dict[int, Path] = {}
        self._process = self._start()
        self._finalizer = weakref.finalize(self, _end, self._process, self._folder)
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until we are logged in: then the engine's socket is there. Raises as the class."""
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def engine_url(self) -> str:
        """Where the host's Docker engine answers."""
        return f"unix://{self._folder / ENGINE_SOCKET}"

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        """Connect to the port of the host that leads to a node's sshd: a `cluster.ssh.connection.Dial`.

        Raises:
            OSError: there is no way to it.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(self._door(node)))
        except BaseException:
            sock.close()
            raise
        return sock

    def close(self) -> None:
        """End the connection, and all that goes through it."""
        self._finalizer()

    @property
    def _words(self) -> Path:
        """What the client says."""
        return self._folder / "words"

    def _start(self) -> subprocess.Popen[bytes]:
        engine = f"{self._folder / ENGINE_SOCKET}:{self.host.docker_socket}"
        argv = [*ssh_argv(self.host), *self._control(), "-M", "-N", "-T", "-L", engine]
        try:
            # A file: it complains of each port that nobody listens on yet, and would wait for who reads a pipe.
            with self._words.open("w") as words:
                return subprocess.Popen(
                    [*argv, "--", self.host.ssh],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=words,
                    start_new_session=True,  # Ctrl-C is ours to handle: we still need it to clean up
                    preexec_fn=end_with_parent,
                )
        except FileNotFoundError:
            shutil.rmtree(self._folder)
            raise PrerequisiteError(
                "no ssh client here", "apt-get install openssh-client"
            ) from None

    def _wait(self) -> None:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while not (self._folder / ENGINE_SOCKET).exists():
            if self._process.poll() is not None:
                raise _refused(self.host, self._words.read_text(errors="replace"))
            if time.monotonic() > deadline:
                raise _refused(self.host, f"no answer within {OPEN_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_S)

    def _door(self, node: Node) -> Path:
        """The socket that leads to a node's port; asked for at first use."""
        with self._lock:
            if node.ssh_port not in self._doors:
                path = self._folder / node.name
                forward = f"{path}:{node.ssh_host}:{node.ssh_port}"
                argv = [*ssh_argv(self.host), *self._control(), "-O", "forward", "-L", forward]
                done = run_bounded([*argv, "--", self.host.ssh])
                if done.returncode != 0:
                    raise ConnectionError(f"host {self.host.name}: {done.stderr.strip()}")
                self._doors[node.ssh_port] = path
            return self._doors[node.ssh_port]

    def _control(self) -> list[str]:
        return ["-S", str(self._folder / CONTROL_SOCKET)]


def ssh_argv(host: Host) -> list[str]:
    """The ssh client with all of its options but the destination."""
    words = ["ssh", *(word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}"))]
    words += ["-F", host.ssh_config] if host.ssh_config else []
    return words + (["-J", host.proxy_jump] if host.proxy_jump else [])


def _refused(host: Host, said: str) -> ClusterError:
    lines = [line for line in said.splitlines() if line.strip()]
    words = " / ".join(lines[-2:]) or "ssh ended without a word"
    return PrerequisiteError(
        f"host {host.name} cannot be reached: {words}",
        f"ssh {host.ssh} must work without a question",
    )


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
