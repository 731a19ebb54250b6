"""An actor's part in a broadcast: a thread that gets weights from one rank and forwards each shard as it arrives.

A rank that has a complete version asks for a newer one; the answer comes once there is one. So a version moves down a
chain or tree while it is still arriving. The learner assigns the rank to get weights from; an actor that cannot reach
that rank, or is too far behind what it keeps, gets weights from the learner itself.
"""

import math
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from node.transport.actor_socket import MOST_RECONNECT_MS, RECONNECT_MS, Identity
from node.transport.broadcast import LEARNER
from node.transport.messages import (
    ELSEWHERE,
    SHARD,
    SUBSCRIBE,
    WEIGHTS,
    Message,
    read_message,
    read_time,
)
from node.transport.shards import Stream, begin
from node.transport.sockets import SILENCE_MS, endpoint, local_ip, set_up
from node.transport.subscribers import Subscribers
from node.transport.traffic import Traffic

LOOK_MS = 200  # for the process's orders
MOST_AT_ONCE = 64  # messages to read before other work
MOST_WAITING = 8  # versions that the process has not taken yet
UNREACHABLE_S = SILENCE_MS / 1000  # without a connection
RETRY_S = 30.0
CLOSE_S = 10.0


class Source(NamedTuple):
    """A rank that weights come from, and its ZeroMQ endpoint."""

    rank: int
    endpoint: str


class Receipt(NamedTuple):
    """The receipt of a version: the last fields of `protocol.metrics.Weights`."""

    version: int
    source: int
    bytes: int
    waited: bool
    published_at_s: float
    received_at_s: float


@dataclass(frozen=True)
class Received:
    """A version of the weights that has arrived.

    Attributes:
        header: the learner's header.
        base: the version to which it is a set of changes; None: it is whole.
        body: the encoded weights, for `weights.decode`.
        receipt: for a line of metrics.
    """

    header: Mapping[str, object]
    base: int | None
    body: bytes
    receipt: Receipt


class Relay:
    """Gets weights for one actor process and forwards them. Starts at the first call of `follow`.

    Args:
        learner: torchrun's MASTER_ADDR and MASTER_PORT.
        me: the identity that is sent with every message.
        ranks: number of ranks.

    Attributes:
        port: port at which other ranks may ask for weights.
    """

    def __init__(self, learner: tuple[str, int], me: Identity, ranks: int) -> None:
        self._me = me
        self._learner = Source(LEARNER, endpoint(learner))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._subscribers = Subscribers(self._context, local_ip(learner), me.rank, ranks)
        self.port = self._subscribers.port
        self._told: Source | None = None  # the source in the latest order
        self._orders: queue.SimpleQueue[Source | None] = queue.SimpleQueue()  # None: start over
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._over = threading.Event()
        self._close_by = math.inf
        self._fault: BaseException | None = None
        # Only the thread uses the attributes below.
        self._assigned = self._learner
        self._go_back_at = math.inf  # from the learner to the assigned source
        self._returns = False  # whether to go back as soon as a version has arrived
        self._stream: Stream | None = None  # the version that is arriving
        self._have = -1
        self._control = Traffic()
        self._poller = zmq.Poller()
        self._poller.register(self._subscribers.socket, zmq.POLLIN)
        self._thread: threading.Thread | None = None

    def follow(self, rank: int, place: str) -> None:
        """Get weights from this rank from now on.

        Args:
            rank: the source of the weights.
            place: its ZeroMQ endpoint; empty: the learner's.
        """
        wanted = Source(rank, place or self._learner.endpoint)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(wanted,), daemon=True)
            self._thread.start()
        elif wanted != self._told:
            self._orders.put(wanted)
        self._told = wanted

    def start_over(self) -> None:
        """Get whole weights from the learner, because what arrived could not be used."""
        self._orders.put(None)

    def receive(self) -> list[Received]:
        """Return the versions that have arrived since the last call, oldest first.

        Raises:
            RuntimeError: the thread has failed.
        """
        if self._fault is not None:
            raise RuntimeError(f"the relay of weights ended: {self._fault}") from self._fault
        received = []
        while not self._received.empty():
            received.append(self._received.get())
        return received

    def close(self) -> Traffic:
        """Finish forwarding the version that is arriving, for CLOSE_S at most; return what was sent."""
        self._close_by = time.monotonic() + CLOSE_S
        self._over.set()
        if self._thread is None:
            self._close_sockets()
        else:
            self._thread.join(2 * CLOSE_S)
        self._control.include(self._subscribers.traffic)
        return self._control

    def _run(self, first: Source) -> None:
        self._assigned = first
        self._connect(first)
        try:
            while not self._over.is_set() or (self._stream and time.monotonic() < self._close_by):
                self._turn()
        except BaseException as fault:  # `receive` raises it in the process
            self._fault = fault
        finally:
            self._disconnect()
            self._close_sockets()

    def _close_sockets(self) -> None:
        self._subscribers.close()
        self._context.term()

    def _turn(self) -> None:
        ready = dict(self._poller.poll(LOOK_MS))
        if self._has_new_source():
            return
        if self._monitor in ready:
            self._watch_connection()
        if self._parent in ready:
            self._receive()
        if self._subscribers.socket in ready:
            self._subscribers.receive()
        if self._may_ask():
            self._subscribe()

    def _has_new_source(self) -> bool:
        """Switch sources if an order, an unreachable rank or the time to go back requires it; return whether it did."""
        now = time.monotonic()
        if not self._orders.empty():
            self._obey(self._orders.get())
        elif self._source != self._learner and now > self._reachable_until:
            self._leave(go_back_at=now + RETRY_S)
        elif now > self._go_back_at and self._stream is None:
            self._go_to(self._assigned)
        else:
            return False
        return True

    def _obey(self, order: Source | None) -> None:
        if order is not None:
            self._assigned = order
            self._go_to(order)
            return
        self._have = -1
        self._subscribers.clear()
        self._leave(go_back_at=time.monotonic() + RETRY_S)

    def _leave(self, *, go_back_at: float) -> None:
        """Get weights from the learner until `go_back_at`."""
        self._go_to(self._learner)
        self._go_back_at = go_back_at if self._assigned != self._learner else math.inf

    def _go_to(self, source: Source) -> None:
        self._disconnect()
        self._connect(source)
        self._go_back_at, self._returns = math.inf, False

    def _connect(self, source: Source) -> None:
        self._source = source
        self._is_connected = self._has_asked = False
        self._reachable_until = time.monotonic() + UNREACHABLE_S
        self._parent = self._context.socket(zmq.DEALER)
        set_up(self._parent)
        self._parent.setsockopt(zmq.IPV6, 1)
        self._parent.setsockopt(zmq.IMMEDIATE, 1)
        self._parent.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._parent.setsockopt(zmq.RECONNECT_IVL_MAX, MOST_RECONNECT_MS)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = self._parent.get_monitor_socket(events)
        self._parent.connect(source.endpoint)
        for socket in (self._parent, self._monitor):
            self._poller.register(socket, zmq.POLLIN)

    def _disconnect(self) -> None:
        self._abort()
        for socket in (self._parent, self._monitor):
            self._poller.unregister(socket)
        self._parent.disable_monitor()
        self._monitor.close(0)
        self._parent.close(0)

    def _abort(self) -> None:
        """Discard a version that has arrived only in part."""
        if self._stream is not None:
            self._subscribers.abort(self._stream)
            self._stream = None

    def _watch_connection(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self._is_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._has_asked = False
            seconds = math.inf if self._is_connected else UNREACHABLE_S
            self._reachable_until = time.monotonic() + seconds

    def _may_ask(self) -> bool:
        """Return whether to ask: one request at a time, and none while the process is behind."""
        is_free = not self._has_asked and self._received.qsize() < MOST_WAITING
        return self._is_connected and is_free and not self._over.is_set()

    def _subscribe(self) -> None:
        """Ask for newer weights."""
        header = {"rank": self._me.rank, "life": self._me.life, "have": self._have}
        frames = Message(SUBSCRIBE, header).frames()
        try:
            self._parent.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:  # the connection is broken: ask after reconnecting
            return
        self._has_asked = True
        self._control.add("control", self._source.rank, frames)

    def _receive(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                frames = self._parent.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._take(read_message(frames))
            except Exception as error:
                self._distrust(error)
                return

    def _distrust(self, error: Exception) -> None:
        """Avoid a rank that sent invalid weights for RETRY_S. Nothing can replace the learner.

        Raises:
            ValueError: it was the learner.
        """
        if self._source == self._learner:
            raise ValueError(f"the learner sent what are no weights: {error}") from error
        self._leave(go_back_at=time.monotonic() + RETRY_S)

    def _take(self, message: Message) -> None:
        """Process weights, or a referral to the learner.

        Raises:
            ValueError: the message is invalid.
        """
        if message.kind == WEIGHTS:
            self._begin(begin(message))
        elif message.kind == SHARD and self._stream is not None:
            self._add(self._stream, message)
        elif message.kind == SHARD:
            raise ValueError("a shard of nothing")
        elif message.kind == ELSEWHERE and self._source != self._learner:
            self._leave(go_back_at=math.inf)
            self._returns = True

    def _begin(self, stream: Stream) -> None:
        """Begin to receive a version.

        Raises:
            ValueError: it does not apply to the version that this rank has.
        """
        self._abort()
        if not stream.applies_to(self._have):
            raise ValueError("weights that nobody has asked for")
        self._stream = stream
        self._subscribers.begin(stream)

    def _add(self, stream: Stream, shard: Message) -> None:
        """Add the next shard and forward it at once.

        Raises:
            ValueError: it is not the next one.
        """
        stream.add(shard)
        self._subscribers.pass_on(stream)
        if stream.is_complete:
            self._stream, self._have, self._has_asked = None, stream.version, False
            self._received.put(self._to_hand_over(stream))
            if self._returns:
                self._go_back_at = -math.inf

    def _to_hand_over(self, stream: Stream) -> Received:
        header, body = stream.head.header, stream.body()
        receipt = Receipt(
            stream.version,
            self._source.rank,
            len(body),
            header["waited"] is True,
            read_time(header, "published_at_s"),
            stream.received_at_s,
        )
        return Received(header, stream.base, body, receipt)
