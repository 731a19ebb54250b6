"""A command on a node, over an open connection: its input, its output, its exit code."""

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

CLOSED = "SSH is closed"  # also for errors without a message, as paramiko raises them
CHUNK_BYTES = 65536
MOST_STDERR_BYTES = 1 << 20  # kept of its end
LOOK_INTERVAL_S = 1.0
LEAST_BYTES = 1 << 16  # that a node must send per `silence_s` of a bulk transfer
MOST_ANSWER_BYTES = 64 << 20  # of a command whose output is collected in memory
# Of any command's standard error: even that of a rank's supervisor is one report.
MOST_ERROR_BYTES = 64 << 20
# Chunks of standard error between two looks at standard output: more than SSH's window holds.
MOST_DRAINED = 64
DRIPS = 10  # times `patience_s`: how long a command may go on that writes next to nothing
MOST_WORDS = 4096  # bytes of standard error that `hand_over` returns


@dataclass(frozen=True)
class Result:
    """The exit code and output of a command on one node."""

    node: str
    exit_code: int
    stdout: bytes
    stderr: bytes

    def words(self) -> str:
        """Return the message for a failure: the command's standard error, else its output, else the exit code."""
        text = (self.stderr or self.stdout).decode(errors="replace").strip()
        if self.exit_code == LOST:
            return text or "the connection broke"
        return text or f"exit code {self.exit_code}"


class RemoteProcess:
    """A command that runs on a node; its standard input stays open until `close_stdin`.

    If the node falls silent, cluster/ssh/liveness.py closes the connection and all waiting ends; `patience_s` is for a
    command that hangs on a node that is alive.

    Args:
        node: the node.
        channel: the open channel of the command.
        patience_s: as the attribute.
        command: the command, as error messages name it.

    Attributes:
        patience_s: how long the command may neither write nor read anything before it counts as hung.
    """

    def __init__(
        self,
        node: str,
        channel: Channel,
        patience_s: float = math.inf,
        command: str = "the command",
    ) -> None:
        self.node = node
        self.patience_s = patience_s
        self._channel = channel
        self._command = command
        self._stderr = b""
        self._stderr_bytes = 0  # that came, of which only the end is kept
        self._idle_s = 0.0  # counted in polls, not by a clock: Ctrl-Z stops our polls, too
        # Time spent waiting for output since the last write or the last LEAST_BYTES, counted in the same way.
        self._waited_s = 0.0
        self._bulk_silence_s: float | None = None  # of `hand_over`
        channel.settimeout(LOOK_INTERVAL_S)

    def write(self, data: bytes) -> None:
        """Send to its standard input.

        Raises:
            NodeError: the connection is closed, or the command does not read.
        """
        self._idle_s = self._waited_s = 0.0
        try:
            self._send(data, self._grow_impatient)
        except (OSError, EOFError) as error:
            raise NodeError("the connection broke", {self.node: str(error) or CLOSED}) from error

    def close_stdin(self) -> None:
        """Close its standard input."""
        self._channel.shutdown_write()

    def chunks(self) -> Iterator[bytes]:
        """Yield its standard output in pieces as it arrives.

        Raises:
            NodeError: it has been silent for longer than `patience_s`, or only trickles for DRIPS times that, or it
                says more than MOST_ERROR_BYTES on standard error.
        """
        while chunk := self._read(self._channel.recv):
            yield chunk

    def lines(self, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
        """Yield its standard output line by line as it arrives, longer lines in pieces; raises as `chunks`."""
        return split_lines(self.chunks(), longest_bytes)

    def wait(self) -> tuple[int, bytes]:
        """Wait for its exit code (LOST if the connection closed first) and the end of stderr; raises as `chunks`."""
        self._waited_s = 0.0
        while self._read(self._recv_stderr):
            pass
        while not self._channel.status_event.wait(LOOK_INTERVAL_S):
            self._grow_impatient()
        code = self._channel.recv_exit_status()
        return LOST if code < 0 else code, self._stderr

    def hand_over(
        self, consume: Callable[[Iterator[bytes]], object], silence_s: float
    ) -> tuple[int, bytes]:
        """Stream its standard output to a function, piece by piece as it arrives, then close the channel.

        Args:
            consume: gets the pieces; it reads them to the end, or raises.
            silence_s: how long the node may take to send LEAST_BYTES, or to end, so that a trickle times out, too.

        Returns:
            Its exit code (LOST if the connection closed first) and the end of its standard error.

        Raises:
            NodeError: it took longer. Also any exception that `consume` raises.
        """
        self.patience_s = self._bulk_silence_s = silence_s
        try:
            consume(self._brisk())
            exit_code, stderr = self.wait()
        finally:
            self.close()
        return exit_code, stderr[-MOST_WORDS:]

    def _bounded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks; raise NodeError after MOST_ANSWER_BYTES."""
        came = 0
        for chunk in chunks:
            came += len(chunk)
            if came > MOST_ANSWER_BYTES:
                raise self._endless(f"more than {MOST_ANSWER_BYTES >> 20} MB")
            yield chunk

    def _brisk(self) -> Iterator[bytes]:
        """Yield standard output; `_refuse_trickle` then counts from the last LEAST_BYTES."""
        came, self._waited_s = 0, 0.0
        for chunk in self.chunks():
            came += len(chunk)
            if came >= LEAST_BYTES:
                came, self._waited_s = 0, 0.0
            yield chunk

    def _refuse_trickle(self) -> None:
        """Raise NodeError if next to nothing has come for too long, whatever comes on standard error."""
        most_s = DRIPS * self.patience_s if self._bulk_silence_s is None else self._bulk_silence_s
        if self._waited_s > most_s:
            words = f"as good as nothing came for {most_s:g} s"
            raise NodeError("the node fell silent", {self.node: words})

    def close(self) -> None:
        """Close the channel; the command's standard input ends."""
        with suppress(OSError, EOFError):  # the connection is closed, and so is the channel
            self._channel.close()

    def communicate(self, stdin: bytes) -> Result:
        """Send all input, read all output, wait for the end.

        Raises:
            NodeError: as `chunks`, or the output is larger than MOST_ANSWER_BYTES.
        """
        sender = threading.Thread(target=self._send_all, args=(stdin,), daemon=True)
        sender.start()
        try:
            stdout = b"".join(self._bounded(self.chunks()))
            exit_code, stderr = self.wait()
        finally:
            self.close()  # also ends the sender
        sender.join()
        return Result(self.node, exit_code, stdout, stderr)

    def _send_all(self, data: bytes) -> None:
        with suppress(OSError, EOFError):  # it ended without reading its input: see the exit code
            self._send(data, lambda: None)  # the thread that reads the output checks for a hang
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
        """Return the next bytes of a stream, empty at its end; drains standard error so that it never blocks."""
        while True:
            began = time.monotonic()
            try:
                chunk = read(CHUNK_BYTES)
            except TimeoutError:
                self._waited_s += LOOK_INTERVAL_S
                self._drain_stderr()
                self._grow_impatient()
                self._refuse_trickle()
                continue
            except (OSError, EOFError):
                return b""  # the connection is closed: `wait` reports that
            self._drain_stderr()
            self._waited_s += min(time.monotonic() - began, LOOK_INTERVAL_S)
            self._refuse_trickle()
            self._idle_s = 0.0
            return chunk

    def _drain_stderr(self) -> None:
        """Read what there is of standard error, but no more than MOST_DRAINED: the clocks of waiting must go on."""
        with suppress(OSError, EOFError):
            for _ in range(MOST_DRAINED):
                if not self._channel.recv_stderr_ready():
                    return
                self._recv_stderr(CHUNK_BYTES)
                self._idle_s = 0.0

    def _recv_stderr(self, count: int) -> bytes:
        """Return the next bytes of standard error, whose end is kept; raise NodeError after MOST_ERROR_BYTES."""
        chunk = self._channel.recv_stderr(count)
        self._stderr_bytes += len(chunk)
        if self._stderr_bytes > MOST_ERROR_BYTES:
            self.close()
            raise self._endless(f"more than {MOST_ERROR_BYTES >> 20} MB on standard error")
        self._stderr = (self._stderr + chunk)[-MOST_STDERR_BYTES:]
        return chunk

    def _endless(self, words: str) -> NodeError:
        return NodeError("an answer without end", {self.node: f"{self._command} says {words}"})

    def _grow_impatient(self) -> None:
        self._idle_s += LOOK_INTERVAL_S
        if self._idle_s > self.patience_s:
            self.close()
            words = f"the command has neither said nor taken anything for {self.patience_s:.0f} s"
            raise NodeError("a command hangs", {self.node: words})
