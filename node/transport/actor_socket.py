"""The actor's end: hands over experience until the learner has said that it has it, and asks for weights.

A connection that breaks is made again, by ZeroMQ. What was under way then is lost, so all that the learner has not
acknowledged is sent once more, and what it gets twice it knows by its number.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from node.transport.messages import (
    ACKNOWLEDGED,
    ASK,
    BYE,
    EXPERIENCE,
    FINISHED,
    FOLLOW,
    HELLO,
    PARTED,
    WEIGHTS,
    Experience,
    Message,
    pack_arrays,
    read_count,
    read_message,
)
from node.transport.sockets import endpoint, set_up
from node.transport.traffic import Traffic

MOST_WAITING = 4  # messages that wait in ZeroMQ
RECONNECT_MS, MOST_RECONNECT_MS = 200, 2000
SAY_GOODBYE_S, WAIT_S = 16.0, 0.05  # on a slow link much may be on its way


@dataclass(frozen=True)
class Identity:
    """Who an actor process is.

    Attributes:
        rank: of it.
        life: when it was started, Unix time in ns: of two that were it one after the other the later has the larger.
    """

    rank: int
    life: int


class ActorSocket:
    """Of one actor process. Used by one thread.

    Args:
        address: torchrun's MASTER_ADDR and MASTER_PORT.
        me: goes with every message.
        window: pieces of experience that may be without an answer.
        relay_port: at which this process passes weights on; 0: it does not.

    Attributes:
        traffic: what was sent.
        connections: how often it was connected: 1 where nothing broke.
        learner_update: how far the learner was when it last said so.
    """

    def __init__(
        self, address: tuple[str, int], me: Identity, window: int, relay_port: int = 0
    ) -> None:
        self._me, self._window, self._relay_port = me, window, relay_port
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        set_up(self._socket)
        self._socket.setsockopt(zmq.SNDHWM, MOST_WAITING)
        # Nothing is taken while there is no connection: what has no answer is sent again, in order, by the next one.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, MOST_RECONNECT_MS)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = self._socket.get_monitor_socket(events)
        self._poller = zmq.Poller()
        for socket in (self._socket, self._monitor):
            self._poller.register(socket, zmq.POLLIN)
        self._connected = False
        self._cut_off_at = time.monotonic()
        self._number = 0
        self._waiting: deque[Message] = deque()  # control, and experience that was never sent
        self._unanswered: deque[Message] = deque()  # experience that was sent
        self._ask: Message | None = None  # that has no answer yet
        self._has_parted = False
        self.traffic = Traffic()
        self.connections = 0
        self.learner_update = 0
        self._socket.connect(endpoint(address))

    @property
    def is_full(self) -> bool:
        """Whether so much is without an answer that nothing should be added."""
        return self.unanswered >= self._window

    @property
    def cut_off_s(self) -> float:
        """For how long there is no connection; 0 where there is one."""
        return 0.0 if self._connected else time.monotonic() - self._cut_off_at

    @property
    def unanswered(self) -> int:
        """Pieces of experience that the learner has not said to have."""
        waiting = sum(message.kind == EXPERIENCE for message in self._waiting)
        return waiting + len(self._unanswered)

    @property
    def has_asked(self) -> bool:
        """Whether an answer to `ask` is to come."""
        return self._ask is not None

    def hand_over(self, experience: Experience) -> None:
        """Send it, now or when it can be."""
        self._number += 1
        shapes, body = pack_arrays(experience.arrays)
        header = {"number": self._number, "shapes": shapes, "figures": dict(experience.figures)}
        self._waiting.append(self._message(EXPERIENCE, header, body))
        self._flush()

    def ask(self, version: int) -> None:
        """Ask for the latest weights; this side has `version` (-1: none of the learner's)."""
        self._ask = self._message(ASK, {"have": version})
        self._waiting.append(self._ask)
        self._flush()

    def receive(self, timeout_s: float) -> list[Message]:
        """The messages that came: weights, whom to get them from, the end. Waits at most `timeout_s` for the first."""
        ready = dict(self._poller.poll(max(0.0, timeout_s) * 1000))
        if self._monitor in ready:
            self._watch_connection()
        messages = []
        while (message := self._next()) is not None:
            if "update" in message.header:
                self.learner_update = max(self.learner_update, read_count(message.header, "update"))
            if message.kind == ACKNOWLEDGED:
                self._acknowledge(read_count(message.header, "number"))
            elif message.kind == PARTED:
                self._has_parted = True
            elif message.kind in (WEIGHTS, FOLLOW, FINISHED):
                self._ask = None if message.kind == WEIGHTS else self._ask
                messages.append(message)
        self._flush()
        return messages

    def close(self, figures: Mapping[str, float]) -> None:
        """Say goodbye, with what there is to tell, before anything that was not sent yet; then let go.

        The answer is waited for: a connection that is closed while something is unread loses what is on its way. Where
        there is no connection nobody is.
        """
        self._waiting = deque([self._message(BYE, {"figures": dict(figures)})])
        deadline = time.monotonic() + SAY_GOODBYE_S
        while self._connected and not self._has_parted and time.monotonic() < deadline:
            self.receive(WAIT_S)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()

    def _message(self, kind: str, header: Mapping[str, object], body: bytes = b"") -> Message:
        return Message(kind, {"rank": self._me.rank, "life": self._me.life, **header}, body)

    def _next(self) -> Message | None:
        try:
            return read_message(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def _acknowledge(self, number: int) -> None:
        """The learner has all up to this number."""
        while self._unanswered and read_count(self._unanswered[0].header, "number") <= number:
            self._unanswered.popleft()

    def _watch_connection(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected = True
                self.connections += 1
                self._begin_anew()
            elif self._connected:
                self._connected, self._cut_off_at = False, time.monotonic()

    def _begin_anew(self) -> None:
        """All that has no answer is to be sent, oldest first."""
        unsent = [message for message in self._waiting if message.kind in (EXPERIENCE, BYE)]
        header = {"connection": self.connections, "relay": self._relay_port}
        hello = self._message(HELLO, header)
        asked = [self._ask] if self._ask else []
        self._waiting = deque([hello, *asked, *self._unanswered, *unsent])
        self._unanswered.clear()

    def _flush(self) -> None:
        """Send what the connection takes."""
        while self._connected and self._waiting:
            frames = self._waiting[0].frames()
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return
            message = self._waiting.popleft()
            self.traffic.add(message.purpose, 0, frames)
            if message.kind == EXPERIENCE:
                self._unanswered.append(message)
