"""The actor's end: sends experience until the learner acknowledges it, and asks for weights.

ZeroMQ reconnects after a broken connection. Data in flight is then lost, so all pieces that the learner has not
acknowledged are sent again; the learner recognises duplicates by their number.
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

MOST_WAITING = 4  # messages in ZeroMQ's send queue
RECONNECT_MS, MOST_RECONNECT_MS = 200, 2000
SAY_GOODBYE_S, WAIT_S = 16.0, 0.05  # much may be in flight on a slow link


@dataclass(frozen=True)
class Identity:
    """The identity of an actor process.

    Attributes:
        rank: its rank.
        life: when it was started, Unix time in ns: a restarted process has a larger one.
    """

    rank: int
    life: int


class ActorSocket:
    """The socket of one actor process. To be used by one thread only.

    Args:
        address: torchrun's MASTER_ADDR and MASTER_PORT.
        me: the identity that is sent with every message.
        window: pieces of experience that may be unacknowledged.
        relay_port: port at which this process forwards weights; 0: it does not.

    Attributes:
        traffic: what was sent.
        connections: how often it connected: 1 if nothing broke.
        learner_update: the learner's latest update, as far as it has told.
    """

    def __init__(
        self, address: tuple[str, int], me: Identity, window: int, relay_port: int = 0
    ) -> None:
        self._me, self._window, self._relay_port = me, window, relay_port
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        set_up(self._socket)
        self._socket.setsockopt(zmq.SNDHWM, MOST_WAITING)
        # Accept no message while disconnected: `_begin_anew` sends the unacknowledged ones again, in order.
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
        self._waiting: deque[Message] = deque()  # control, and experience never sent
        self._unanswered: deque[Message] = deque()  # experience that was sent but not acknowledged
        self._ask: Message | None = None  # the request that has no answer yet
        self._has_parted = False
        self.traffic = Traffic()
        self.connections = 0
        self.learner_update = 0
        self._socket.connect(endpoint(address))

    @property
    def is_full(self) -> bool:
        """Whether the window of unacknowledged experience is full."""
        return self.unanswered >= self._window

    @property
    def cut_off_s(self) -> float:
        """Seconds since the connection was lost; 0 if there is one."""
        return 0.0 if self._connected else time.monotonic() - self._cut_off_at

    @property
    def unanswered(self) -> int:
        """Pieces of experience that the learner has not acknowledged."""
        waiting = sum(message.kind == EXPERIENCE for message in self._waiting)
        return waiting + len(self._unanswered)

    @property
    def has_asked(self) -> bool:
        """Whether an answer to `ask` is outstanding."""
        return self._ask is not None

    def hand_over(self, experience: Experience) -> None:
        """Send a piece of experience, now or as soon as possible."""
        self._number += 1
        shapes, body = pack_arrays(experience.arrays)
        header = {"number": self._number, "shapes": shapes, "figures": dict(experience.figures)}
        self._waiting.append(self._message(EXPERIENCE, header, body))
        self._flush()

    def ask(self, version: int) -> None:
        """Ask for the latest weights; this actor has `version` (-1: none of the learner's)."""
        self._ask = self._message(ASK, {"have": version})
        self._waiting.append(self._ask)
        self._flush()

    def receive(self, timeout_s: float) -> list[Message]:
        """Return new messages: weights, where to get them, the end. Waits at most `timeout_s` for the first."""
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
        """Say goodbye with these figures, instead of anything that was not sent yet, and close the socket.

        Waits for the answer if there is a connection: closing one with unread data loses data in flight.
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
        """Forget the pieces up to this number, which the learner has."""
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
        """Queue a hello and all unanswered messages, oldest first."""
        unsent = [message for message in self._waiting if message.kind in (EXPERIENCE, BYE)]
        header = {"connection": self.connections, "relay": self._relay_port}
        hello = self._message(HELLO, header)
        asked = [self._ask] if self._ask else []
        self._waiting = deque([hello, *asked, *self._unanswered, *unsent])
        self._unanswered.clear()

    def _flush(self) -> None:
        """Send as much as the connection takes."""
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
