"""One SSH connection to a host, which forwards local Unix sockets to ports and sockets of the host.

The user's own ssh client makes the connection, with the user's keys, agent, known hosts, jump hosts and aliases. The
local ends are Unix sockets in a folder that only this user can enter: no port of this machine is opened, and concurrent
commands do not collide. The client ends with this process, even if the process is killed.
"""

import shlex
import shutil
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.base import processes
from cluster.base.errors import ClusterError, PrerequisiteError
from cluster.base.processes import HangingProgram, end_with_parent, run_bounded
from cluster.base.spec import Node
from cluster.hosts.hosts_file import Host
from cluster.hosts.socket_folder import make_socket_folder

OPEN_TIMEOUT_S = 30.0
LOOK_S = 0.02
END_TIMEOUT_S = 5.0
ENGINE_SOCKET, CONTROL_SOCKET = "engine", "control"
OPTIONS = {
    "BatchMode": "yes",  # nobody is there to type a password
    "StrictHostKeyChecking": "yes",
    # Forwardings of the user's configuration would open ports here, and fail for the second concurrent command. It
    # clears those of the command line as well, so ours are requested once the connection is up.
    "ClearAllForwardings": "yes",
    "ExitOnForwardFailure": "yes",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "5",  # a host that is silent for 15 s is lost, like a node
    "ServerAliveCountMax": "3",
    "ControlPersist": "no",
}


class Tunnel:
    """One SSH connection to a host, open until this object or the thread that created it ends.

    Args:
        host: the host to connect to.
        waits: whether to wait for the login; if not, call `wait`.

    Raises:
        PrerequisiteError: this machine has no ssh client, or the login failed; quotes the client.
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
        """Wait for the login, then forward the engine's socket, if there is an engine. Raises like the class."""
        try:
            self._wait()
            if self.host.has_engine:
                self._forward(self._folder / ENGINE_SOCKET, self.host.docker_socket)
        except ConnectionError as error:
            self.close()
            raise _refused(self.host, str(error)) from error
        except BaseException:
            self.close()
            raise

    @property
    def engine_url(self) -> str:
        """The local URL of the host's Docker engine."""
        return f"unix://{self._folder / ENGINE_SOCKET}"

    @property
    def has_ended(self) -> bool:
        """Whether the connection is gone, for example after a network outage. A tunnel never reconnects."""
        return self._process.poll() is not None

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        """Connect to the host's port of a node's sshd; a `cluster.ssh.connection.Dial`.

        Raises:
            OSError: the node cannot be reached.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(self._door(node)))
        except BaseException:
            sock.close()
            raise
        return sock

    def run(self, argv: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program on the host to its end; exit code 255: the connection broke.

        Raises:
            HangingProgram: it has not ended in time.
        """
        try:
            return run_bounded(self.remote(argv), stdin=stdin)
        except HangingProgram as error:
            raise self.hangs(f"`{shlex.join(argv)}`") from error

    def hangs(self, what: str) -> HangingProgram:
        """Return the error for a program on the host that has not ended in time."""
        return HangingProgram(
            f"host {self.host.name}: {what} has not ended within {processes.TIMEOUT_S:.0f} s",
            f"look there for what hangs: ssh {self.host.ssh} ps axf",
        )

    @contextmanager
    def open(self, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """Start a program on the host whose output is read as it comes; at the end of the block, end it."""
        with subprocess.Popen(
            self.remote(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        ) as process:
            try:
                yield process
            finally:  # a program that says nothing does not notice that nobody listens
                _end_process(process)

    def remote(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs a program on the host through this connection."""
        # The ssh client joins words with blanks, and the login shell there splits them again.
        words = ["ssh", "-F", "none", "-S", str(self._control), "-T"]
        # Without its connection the client would make one of its own, perhaps to another host.
        words += ["-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
        return [*words, "--", self.host.ssh, shlex.join(argv)]

    def close(self) -> None:
        """End the connection and everything that goes through it."""
        self._finalizer()

    @property
    def _words(self) -> Path:
        """The file with the client's error output."""
        return self._folder / "words"

    @property
    def _control(self) -> Path:
        """The client's control socket, which exists once the login has succeeded."""
        return self._folder / CONTROL_SOCKET

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [*ssh_argv(self.host), "-S", str(self._control), "-M", "-N", "-T"]
        try:
            # A file, not a pipe: the client complains of each port that nobody listens on yet, and a full pipe would
            # block it.
            with self._words.open("w") as words:
                return subprocess.Popen(
                    [*argv, "--", self.host.ssh],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=words,
                    start_new_session=True,  # Ctrl-C must not end it: we still need it to clean up
                    preexec_fn=end_with_parent,
                )
        except FileNotFoundError:
            shutil.rmtree(self._folder)
            raise PrerequisiteError(
                "no ssh client here", "apt-get install openssh-client"
            ) from None

    def _wait(self) -> None:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while not self._control.exists():
            if self.has_ended:
                raise _refused(self.host, self._words.read_text(errors="replace"))
            if time.monotonic() > deadline:
                raise _refused(self.host, f"no answer within {OPEN_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_S)

    def _door(self, node: Node) -> Path:
        """Return the local socket that leads to a node's port; forwarded at first use."""
        with self._lock:
            if node.ssh_port not in self._doors:
                # Named by the port: a node of the same name has another port after `down` and `up` in another slot.
                path = self._folder / str(node.ssh_port)
                self._forward(path, f"{node.ssh_host}:{node.ssh_port}")
                self._doors[node.ssh_port] = path
            return self._doors[node.ssh_port]

    def _forward(self, path: Path, target: str) -> None:
        """Have the client forward a local socket to a port or socket of the host.

        Raises:
            ConnectionError: the client refused or has ended.
        """
        # Without configuration, and without OPTIONS: ClearAllForwardings would clear this one, too.
        argv = ["ssh", "-F", "none", "-S", str(self._control), "-O", "forward"]
        done = run_bounded([*argv, "-L", f"{path}:{target}", "--", self.host.ssh])
        if done.returncode != 0:
            raise ConnectionError(f"host {self.host.name}: {done.stderr.strip()}")


def ssh_argv(host: Host) -> list[str]:
    """Return the ssh command with all its options, without the destination."""
    words = ["ssh", *(word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}"))]
    return words + route_options(host)


def route_options(host: Host) -> list[str]:
    """Return the options of the ssh client that say how to reach a host."""
    words = ["-F", host.ssh_config] if host.ssh_config else []
    return words + (["-J", host.proxy_jump] if host.proxy_jump else [])


def _refused(host: Host, said: str) -> ClusterError:
    lines = [line for line in said.splitlines() if line.strip()]
    words = " / ".join(lines[-2:]) or "ssh ended without a word"
    return PrerequisiteError(
        f"host {host.name} cannot be reached: {words}",
        f"make this command work without a question: ssh {host.ssh}",
    )


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    _end_process(process)
    shutil.rmtree(folder, ignore_errors=True)


def _end_process(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    if process.poll() is None:
        process.kill()
        process.wait()
