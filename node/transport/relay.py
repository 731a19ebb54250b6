"""An actor's part in a broadcast: a thread that gets weights from one rank and passes each shard on as it comes.

Who has all of a version asks for a newer one; the answer comes when there is one. So a version goes down a chain or a
tree while it is still coming in, and a rank whose link is slow misses versions without holding up who is before it.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from node.transport.actor_socket import MOST_RECONNECT_MS, RECONNECT_MS, Identity
from node.transport.broadcast import LEARNER
from node.transport.messages import (
    SHARD,
    SUBSCRIBE,
    WEIGHTS,
    Message,
    read_count,
    read_message,
)
from node.transport.shards import Stream, begin
from node.transport.sockets import endpoint, local_ip, set_up
from node.transport.traffic import Traffic

LOOK_MS = 200  # for what its process wants of it
KEPT_STREAMS = 8  # deltas: for who is behind by a few
CLOSE_S = 10.0


@dataclass(frozen=True)
class Received:
    """A version of the weights that has come.

    Attributes:
        header: what the learner says of it.
        body: as `weights.decode` takes it.
        receipt: of its broadcast: `version`, `source` (the rank it came from), `shards`, `bytes`, and as Unix times
            `asked_at_s`, `published_at_s`, `received_at_s`.
    """

    header: Mapping[str, Any]
    body: bytes
    receipt: Mapping[str, float]


@dataclass
class Child:
    """Who waits for newer weights, or is getting them.

    Attributes:
        route: of its connection.
        have: the version that it has.
        stream: what it is getting.
    """

    route: bytes
    have: int
    stream: Stream | None = None


class Relay:
    """Of one actor process. It gets weights from the learner until it is told to follow another.

    Args:
        learner: torchrun's MASTER_ADDR and MASTER_PORT.
        me: goes with every message.

    Attributes:
        port: at which other ranks may ask.
    """

    def __init__(self, learner: tuple[str, int], me: Identity) -> None:
        self._me, self._learner = me, endpoint(learner)
        self._follows = LEARNER, self._learner
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._children = self._context.socket(zmq.ROUTER)
        set_up(self._children)
        self._children.setsockopt(zmq.SNDHWM, 0)
        self._children.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so where nobody is any more
        self._children.setsockopt(zmq.IPV6, 1)
        self._children.bind(f"tcp://{local_ip(learner)}:0")
        bound: bytes = self._children.getsockopt(zmq.LAST_ENDPOINT)
        self.port = int(bound.rpartition(b":")[2])
        self._orders: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._over = threading.Event()
        self._fault: BaseException | None = None
        # What follows is the thread's.
        self._waiting: dict[int, Child] = {}  # by rank
        self._streams: deque[Stream] = deque(maxlen=KEPT_STREAMS)  # the last is the latest
        self._have = -1
        self._asked_at_s = 0.0
        self._traffic = Traffic()
        self._poller = zmq.Poller()
        self._poller.register(self._children, zmq.POLLIN)
        self._connect(*self._follows)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def follow(self, rank: int, place: str) -> None:
        """Get weights from this rank from now on.

        Args:
            rank: of who has them.
            place: ZeroMQ's word for where it listens; empty: the learner's.
        """
        wanted = rank, place or self._learner
        if wanted != self._follows:
            self._follows = wanted
            self._orders.put(wanted)

    def receive(self) -> list[Received]:
        """What has come, oldest first: of deltas each wants the one before.

        Raises:
            RuntimeError: the thread has ended.
        """
        if self._fault is not None:
            raise RuntimeError("the relay of weights ended") from self._fault
        received = []
        while not self._received.empty():
            received.append(self._received.get())
        return received

    def close(self) -> Traffic:
        """Pass nothing on any more; what was sent."""
        self._over.set()
        self._thread.join(CLOSE_S)
        return self._traffic

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._turn()
        except BaseException as fault:  # its process says so
            self._fault = fault
        finally:
            self._disconnect()
            self._children.close(0)
            self._context.term()

    def _turn(self) -> None:
        ready = dict(self._poller.poll(LOOK_MS))
        if not self._orders.empty():
            self._disconnect()
            self._connect(*self._orders.get())
            return
        if self._monitor in ready and self._is_connected_anew():
            self._subscribe(self._wanted())
        if self._parent in ready:
            self._hear()
        if self._children in ready:
            self._heed()

    def _connect(self, rank: int, place: str) -> None:
        self._source = rank
        self._parent = self._context.socket(zmq.DEALER)
        set_up(self._parent)
        self._parent.setsockopt(zmq.IPV6, 1)
        self._parent.setsockopt(zmq.IMMEDIATE, 1)
        self._parent.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._parent.setsockopt(zmq.RECONNECT_IVL_MAX, MOST_RECONNECT_MS)
        self._monitor = self._parent.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._parent.connect(place)
        for socket in (self._parent, self._monitor):
            self._poller.register(socket, zmq.POLLIN)

    def _disconnect(self) -> None:
        """What has come of a stream in part is of no use."""
        for socket in (self._parent, self._monitor):
            self._poller.unregister(socket)
        self._parent.disable_monitor()
        self._monitor.close(0)
        self._parent.close(0)
        self._drop_partial()

    def _drop_partial(self) -> None:
        if not self._streams or self._streams[-1].is_complete:
            return
        partial = self._streams.pop()
        for child in self._waiting.values():
            if child.stream is partial:
                child.stream = None

    def _is_connected_anew(self) -> bool:
        seen = False
        while self._monitor.poll(0):
            recv_monitor_message(self._monitor)
            seen = True
        return seen

    def _subscribe(self, have: int) -> None:
        """Where there is no connection: once there is one."""
        header = {"rank": self._me.rank, "life": self._me.life, "have": have}
        frames = Message(SUBSCRIBE, header).frames()
        try:
            self._parent.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return
        self._asked_at_s = time.time()
        self._traffic.add("control", self._source, frames)

    def _hear(self) -> None:
        """Take what has come of weights; what is none costs nothing."""
        while True:
            try:
                message = read_message(self._parent.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            except ValueError:
                continue
            try:
                if message.kind == WEIGHTS:
                    self._begin(message)
                elif message.kind == SHARD:
                    self._take(message)
            except ValueError:
                self._drop_partial()
                self._subscribe(self._wanted())

    def _begin(self, head: Message) -> None:
        self._drop_partial()
        stream = begin(head)
        if stream.base is None:
            self._streams.clear()  # it serves all
        self._streams.append(stream)
        for rank in list(self._waiting):
            self._serve(rank)

    def _take(self, shard: Message) -> None:
        """The next shard of the latest stream: it goes on at once."""
        if not self._streams:
            raise ValueError("a shard of nothing")
        stream = self._streams[-1]
        stream.add(shard)
        for rank, child in list(self._waiting.items()):
            if child.stream is stream:
                self._send(rank, child, [shard])
        if stream.is_complete:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Hand it over, and ask for what comes after it."""
        for rank in [rank for rank, child in self._waiting.items() if child.stream is stream]:
            del self._waiting[rank]  # it asks again when it has all
        if stream.fits(self._have):
            self._have = stream.version
            self._received.put(Received(stream.head.header, stream.body(), self._receipt(stream)))
        self._subscribe(self._wanted())

    def _wanted(self) -> int:
        """The version that newer weights may be changes of; -1, whole ones, where who waits has an older one."""
        is_behind = any(child.have < self._have for child in self._waiting.values())
        return -1 if is_behind else self._have

    def _receipt(self, stream: Stream) -> dict[str, float]:
        return {
            "version": stream.version,
            "source": self._source,
            "shards": stream.count,
            "bytes": sum(len(shard.body) for shard in stream.shards),
            "asked_at_s": self._asked_at_s,
            "published_at_s": stream.head.header["published_at_s"],
            "received_at_s": stream.received_at_s,
        }

    def _heed(self) -> None:
        """Who asks gets what there is for it, or waits."""
        while True:
            try:
                route, *frames = self._children.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = read_message(frames)
                rank, have = (read_count(message.header, name) for name in ("rank", "have"))
            except ValueError:
                continue
            if message.kind == SUBSCRIBE:
                self._waiting[rank] = Child(route, have)
                self._serve(rank)
                if rank in self._waiting and have < self._have and not self._waiting[rank].stream:
                    self._subscribe(-1)  # nothing that comes by itself would be of use

    def _serve(self, rank: int) -> None:
        child = self._waiting[rank]
        fitting = [stream for stream in self._streams if stream.fits(child.have)]
        if child.stream is not None or not fitting:
            return
        child.stream = fitting[-1]
        self._send(rank, child, child.stream.messages)
        if child.stream.is_complete:
            self._waiting.pop(rank, None)

    def _send(self, rank: int, child: Child, messages: list[Message]) -> None:
        """To who is not there any more: nothing."""
        for message in messages:
            frames = message.frames()
            try:
                self._children.send_multipart([child.route, *frames], zmq.NOBLOCK)
            except zmq.ZMQError:
                self._waiting.pop(rank, None)
                return
            self._traffic.add(message.purpose, rank, frames)
