"""Fake nodes: a fleet with fake SSH channels that give prepared answers."""

import io
import threading

from cluster.base.spec import ClusterSpec
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess, Result

SPEC = ClusterSpec("lab", 3, 0)
NAMES = [node.name for node in SPEC.nodes]


class Channel:
    """A fake of paramiko's channel, for a command that prints this and ends."""

    def __init__(self, stdout, stderr=b"", exit_code=0):
        self._out, self._err, self._exit_code = io.BytesIO(stdout), io.BytesIO(stderr), exit_code
        self._left = len(stderr)
        self.status_event = threading.Event()
        self.status_event.set()

    def settimeout(self, seconds):
        """Do nothing: it never waits."""

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
        """Do nothing: the input is not read."""

    def close(self):
        """Do nothing: there is nothing to close."""

    def recv_exit_status(self):
        return self._exit_code


class PatientChannel(Channel):
    """A channel of a command that ends when its standard input does."""

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
    """Three nodes, which give the answers of `answers` to every command: standard output, error, exit code."""

    channel = Channel

    def __init__(self, answers):
        self.nodes, self.lost, self.hosts = SPEC.nodes, {}, {}
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
    """A fleet whose commands wait for the end of their standard input."""

    def channel(self, stdout, *_):
        return PatientChannel(stdout)


def one_odd(good, odd, node="node2"):
    """Return answers by node: good ones, except for one node."""
    return {name: odd if name == node else good for name in NAMES}
