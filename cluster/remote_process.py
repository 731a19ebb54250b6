"""A command on a node, over a connection that is open: what goes in, what comes out, how it ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.errors import NodeError

if TYPE_CHECKING:
    from paramiko import Channel

# Exit code where the connection went before the command ended; no signal has this number.
LOST = -1000


@dataclass(frozen=True)
class Result:
    """How a command ended on one node."""

    node: str
    exit_code: int
    stdout: bytes
    stderr: bytes

    def words(self) -> str:
        """What a user should read of a failure: the last words of the command."""
        text = (self.stderr or self.stdout).decode(errors="replace").strip()
        return text or f"exit code {self.exit_code}"


class RemoteProcess:
    """A command that runs on a node; its standard input stays open until `close_stdin`."""

    def __init__(self, node: str, channel: Channel) -> None:
        self.node = node
        self._channel = channel

    def write(self, data: bytes) -> None:
        """Send to its standard input.

        Raises:
            NodeError: the connection has gone.
        """
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise NodeError("the connection broke", {self.node: str(error)}) from error

    def close_stdin(self) -> None:
        """End its standard input."""
        self._channel.shutdown_write()

    def lines(self) -> Iterator[str]:
        """Its standard output, line by line, as it comes."""
        rest = b""
        while chunk := self._channel.recv(65536):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
        if rest:
            yield rest.decode(errors="replace")

    def wait(self) -> tuple[int, bytes]:
        """Its exit code (LOST where the connection went first) and its standard error."""
        stderr = b"".join(iter(lambda: self._channel.recv_stderr(65536), b""))
        code = self._channel.recv_exit_status()
        return LOST if code < 0 else code, stderr

    def close(self) -> None:
        """Let go of it: its standard input ends."""
        self._channel.close()

    def communicate(self, stdin: bytes) -> Result:
        """Send all input, read all output, wait for the end."""
        sender = threading.Thread(target=self._send_all, args=(stdin,), daemon=True)
        sender.start()
        stdout = b"".join(iter(lambda: self._channel.recv(65536), b""))
        exit_code, stderr = self.wait()
        sender.join()
        self._channel.close()
        return Result(self.node, exit_code, stdout, stderr)

    def _send_all(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
            self._channel.shutdown_write()
        except OSError:
            pass  # it ended without reading its input; the exit code tells
