"""Nodes that answer what they are told to: a fleet over SSH channels that never were."""

import io
import threading

from cluster.base.spec import ClusterSpec
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess, Result

SPEC = ClusterSpec("lab", 3, 0)
NAMES = [node.name for node in SPEC.nodes]


class Channel:
    """As paramiko's, of a command that says this and ends."""

    def __init__(self, stdout, stderr=b"", exit_code=0):
        self._out, self._err, self._exit_code = io.BytesIO(stdout), io.BytesIO(stderr), exit_code
        self._left = len(stderr)
        self.status_event = threading.Event()
        self.status_event.set()

    def settimeout(self, seconds):
        """It never waits."""

    def recv(self, count):
        return self._out.read(count)

    def recv_stderr(self, count):
        piece = self._err.read(count)
        self._left -= len(piece)
        return piece

    def recv_stderr_ready(self):
        return self._left > 0

    def send(self, data):
        return len(data)

    def shutdown_write(self):
        """Nobody reads it."""

    def close(self):
        """There is nothing to close."""

    def recv_exit_status(self):
        return self._exit_code


class PatientChannel(Channel):
    """Of a command that ends with its standard input."""

    def __init__(self, stdout):
        super().__init__(stdout)
        self._over = threading.Event()

    def recv(self, count):
        piece = super().recv(count)
        if not piece and not self._over.wait(0.2):
            raise TimeoutError
        return piece

    def shutdown_write(self):
        self._over.set()

    close = shutdown_write


class FakeFleet(Fleet):
    """Three nodes; to each command each says what `answers` has of it: standard output, error, exit code."""

    channel = Channel

    def __init__(self, answers):
        self.nodes, self.lost = SPEC.nodes, {}
        self._answers = answers

    def run(self, argv, *, nodes=None, check=True, stdin=None, patience_s=0.0):
        return {
            node: Result(node, exit_code, stdout, stderr)
            for node in nodes or NAMES
            for stdout, stderr, exit_code in [self._answer(node)]
        }

    def start(self, node, argv):
        return RemoteProcess(node, self.channel(*self._answer(node)))

    def each(self, action, what):
        for node in self.nodes:
            action(node)

    def _answer(self, node):
        said = self._answers[node]
        return said if isinstance(said, tuple) else (said, b"", 0)


class PatientFleet(FakeFleet):
    """Its commands wait for the end of their standard input."""

    def channel(self, stdout, *_):
        return PatientChannel(stdout)


def one_odd(good, odd, node="node2"):
    """Answers by node: all good but that of one."""
    return {name: odd if name == node else good for name in NAMES}
