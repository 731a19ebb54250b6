"""A command on a node, over an open connection: its input, its output, how it ended."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.base.errors import NodeError
from cluster.base.line_splitter import LONGEST_LINE_BYTES, split_lines
from protocol.rank import LOST

if TYPE_CHECKING:
    from paramiko import Channel

CHUNK_BYTES = 65536
MOST_STDERR_BYTES = 1 << 20  # of which the end is kept
LOOK_INTERVAL_S = 1.0
LEAST_BYTES = 1 << 16  # in the time that a node has which sends much
MOST_ANSWER_BYTES = 64 << 20  # of a command whose output is wanted whole
DRIPS = 10  # times its patience: so long may a command go on that says something now and then, but as good as nothing
MOST_WORDS = 4096  # of its standard error, where its output is handed over


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
        if self.exit_code == LOST:
            return text or "the connection broke"
        return text or f"exit code {self.exit_code}"


class RemoteProcess:
    """A command that runs on a node; its standard input stays open until `close_stdin`.

    A node that is silent is lost, and then all waiting ends (cluster/ssh/liveness.py). A command on a node that is not,
    may hang all the same.

    Attributes:
        patience_s: how long the command may neither say nor take anything before it counts as hung.
    """

    def __init__(self, node: str, channel: Channel, patience_s: float = math.inf) -> None:
        self.node = node
        self.patience_s = patience_s
        self._channel = channel
        self._stderr = b""
        self._idle_s = 0.0  # in looks, and not by a clock: Ctrl-Z stops our looks, too
        self._waited_s = 0.0  # for its output, since something was written, or much came; likewise
        channel.settimeout(LOOK_INTERVAL_S)

    def write(self, data: bytes) -> None:
        """Send to its standard input.

        Raises:
            NodeError: the connection has gone, or the command takes nothing.
        """
        self._idle_s = self._waited_s = 0.0
        try:
            self._send(data, self._grow_impatient)
        except (OSError, EOFError) as error:
            raise NodeError("the connection broke", {self.node: str(error)}) from error

    def close_stdin(self) -> None:
        """End its standard input."""
        self._channel.shutdown_write()

    def chunks(self) -> Iterator[bytes]:
        """Its standard output, in pieces, as it comes.

        Raises:
            NodeError: it has been silent for longer than `patience_s`, or only drips for DRIPS times that.
        """
        while chunk := self._read(self._channel.recv):
            yield chunk

    def lines(self, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
        """Its standard output, line by line, as it comes, longer ones in pieces; raises as `chunks`."""
        return split_lines(self.chunks(), longest_bytes)

    def wait(self) -> tuple[int, bytes]:
        """Its exit code (LOST where the connection went first), the end of its standard error; raises as `chunks`."""
        self._waited_s = 0.0
        while chunk := self._read(self._channel.recv_stderr):
            self._keep(chunk)
        while not self._channel.status_event.wait(LOOK_INTERVAL_S):
            self._grow_impatient()
        code = self._channel.recv_exit_status()
        return LOST if code < 0 else code, self._stderr

    def hand_over(
        self, consume: Callable[[Iterator[bytes]], object], silence_s: float
    ) -> tuple[int, bytes]:
        """Hand its standard output to a function, piece by piece as it comes; then it is let go of.

        Args:
            consume: gets the pieces; it reads to their end, or raises.
            silence_s: how long its node may take to send LEAST_BYTES, or to end: what drips is as good as nothing.

        Returns:
            Its exit code (LOST where the connection went first) and the end of its standard error.

        Raises:
            NodeError: it took longer; and whatever `consume` raises.
        """
        self.patience_s = silence_s
        try:
            consume(self._brisk(silence_s))
            exit_code, stderr = self.wait()
        finally:
            self.close()
        return exit_code, stderr[-MOST_WORDS:]

    def _bounded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """What comes, as long as anybody would have so much to say."""
        came = 0
        for chunk in chunks:
            came += len(chunk)
            if came > MOST_ANSWER_BYTES:
                words = f"the command says more than {MOST_ANSWER_BYTES >> 20} MB"
                raise NodeError("an answer without end", {self.node: words})
            yield chunk

    def _brisk(self, silence_s: float) -> Iterator[bytes]:
        """Standard output, as long as it does not only drip."""
        came, self._waited_s = 0, 0.0
        for chunk in self.chunks():
            came += len(chunk)
            if came >= LEAST_BYTES:
                came, self._waited_s = 0, 0.0
            if self._waited_s > silence_s:
                raise self._silent(silence_s)
            yield chunk

    def _silent(self, seconds: float) -> NodeError:
        words = f"as good as nothing came for {seconds:g} s"
        return NodeError("the node fell silent", {self.node: words})

    def close(self) -> None:
        """Let go of it: its standard input ends."""
        with suppress(OSError, EOFError):  # the connection has gone, and the command with it
            self._channel.close()

    def communicate(self, stdin: bytes) -> Result:
        """Send all input, read all output, wait for the end.

        Raises:
            NodeError: as `chunks`; its output is without end.
        """
        sender = threading.Thread(target=self._send_all, args=(stdin,), daemon=True)
        sender.start()
        try:
            stdout = b"".join(self._bounded(self.chunks()))
            exit_code, stderr = self.wait()
        finally:
            self.close()  # which ends the sender, too
        sender.join()
        return Result(self.node, exit_code, stdout, stderr)

    def _send_all(self, data: bytes) -> None:
        with suppress(OSError, EOFError):  # it ended without reading its input; the exit code tells
            self._send(data, lambda: None)  # who reads its output is impatient for both
            self._channel.shutdown_write()

    def _send(self, data: bytes, when_idle: Callable[[], None]) -> None:
        rest = memoryview(data)
        while rest:
            try:
                sent = self._channel.send(bytes(rest[:CHUNK_BYTES]))
            except TimeoutError:
                when_idle()
                continue
            if sent == 0:
                raise BrokenPipeError("it is closed")
            self._idle_s = 0.0
            rest = rest[sent:]

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        """The next bytes of a stream; nothing at its end. Standard error never fills up meanwhile."""
        while True:
            began = time.monotonic()
            try:
                chunk = read(CHUNK_BYTES)
            except TimeoutError:
                self._waited_s += LOOK_INTERVAL_S
                self._drain_stderr()
                self._grow_impatient()
                continue
            except (OSError, EOFError):
                return b""  # the connection has gone: `wait` tells
            self._waited_s += min(time.monotonic() - began, LOOK_INTERVAL_S)
            if self._waited_s > DRIPS * self.patience_s:
                raise self._silent(DRIPS * self.patience_s)
            self._idle_s = 0.0
            self._drain_stderr()
            return chunk

    def _drain_stderr(self) -> None:
        with suppress(OSError, EOFError):
            while self._channel.recv_stderr_ready():
                self._keep(self._channel.recv_stderr(CHUNK_BYTES))
                self._idle_s = 0.0

    def _keep(self, stderr: bytes) -> None:
        self._stderr = (self._stderr + stderr)[-MOST_STDERR_BYTES:]

    def _grow_impatient(self) -> None:
        self._idle_s += LOOK_INTERVAL_S
        if self._idle_s > self.patience_s:
            self.close()
            words = f"the command has neither said nor taken anything for {self.patience_s:.0f} s"
            raise NodeError("a command hangs", {self.node: words})
