"""The ranks that get weights from an actor: each waits for a newer version, or is receiving one shard by shard."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from node.transport.messages import ELSEWHERE, SUBSCRIBE, Message, read_count, read_message
from node.transport.shards import Stream
from node.transport.sockets import make_router
from node.transport.traffic import Traffic

KEPT_STREAMS = 8  # deltas, for ranks that are a few versions behind
MOST_AT_ONCE = 64  # messages to read before other work
FLUSH_MS = 2000


@dataclass
class Subscriber:
    """One connection.

    Attributes:
        rank: the rank at its other end.
        have: the version that this rank has.
        stream: the version that it is receiving; None: it waits.
    """

    rank: int
    have: int
    stream: Stream | None = None


class Subscribers:
    """Serves the ranks that get weights from this one. To be used by one thread only.

    Args:
        context: the ZeroMQ context.
        ip: address to listen at.
        me: this rank.
        ranks: number of ranks.

    Attributes:
        socket: the socket to poll.
        port: port at which it listens.
        malformed: number of invalid messages.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", ip: str, me: int, ranks: int
    ) -> None:
        self.socket = make_router(context)  # it sends at most the streams that are kept
        self.socket.bind(f"tcp://{ip}:0")
        bound: bytes = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        self.port = int(bound.rpartition(b":")[2])
        self._me, self._ranks = me, ranks
        self._by_route: dict[bytes, Subscriber] = {}
        self._streams: deque[Stream] = deque(maxlen=KEPT_STREAMS)  # the newest is last
        self.traffic = Traffic()
        self.malformed = 0

    def begin(self, stream: Stream) -> None:
        """Begin to forward a newer version: each rank that waits for one gets each shard as it arrives."""
        if stream.base is None:
            self._streams.clear()  # whole weights serve all ranks
        self._streams.append(stream)
        for route, subscriber in list(self._by_route.items()):
            if subscriber.stream is None:
                self._serve(route, waited=True)

    def pass_on(self, stream: Stream) -> None:
        """Forward the latest shard of a stream that has begun."""
        for route, subscriber in list(self._by_route.items()):
            if subscriber.stream is stream:
                self._send(route, stream.shards[-1:])
                if stream.is_complete:
                    self._by_route.pop(route, None)  # it asks again once it has all shards

    def abort(self, stream: Stream) -> None:
        """Drop a stream that will stay incomplete: ranks that got a part of it wait for another version."""
        if stream in self._streams:
            self._streams.remove(stream)
        for subscriber in self._by_route.values():
            if subscriber.stream is stream:
                subscriber.stream = None

    def clear(self) -> None:
        """Drop all streams."""
        for stream in list(self._streams):
            self.abort(stream)

    def receive(self) -> None:
        """Read what has arrived."""
        for _ in range(MOST_AT_ONCE):
            try:
                route, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._subscribe(route, read_message(frames))
            except Exception:  # an invalid message must not affect other ranks
                self.malformed += 1

    def close(self) -> None:
        """Close the socket; ZeroMQ still sends what is queued, for FLUSH_MS at most."""
        self.socket.close(FLUSH_MS)

    def _subscribe(self, route: bytes, message: Message) -> None:
        """Note a request. Only a rank's latest connection counts; one that is being served gets no second answer."""
        rank, have = (read_count(message.header, name) for name in ("rank", "have"))
        if message.kind != SUBSCRIBE or not 0 < rank < self._ranks or rank == self._me:
            raise ValueError("a message of nobody who could want weights")
        known = self._by_route.get(route)
        if known is not None and known.stream is not None:
            return
        for other in [r for r, one in self._by_route.items() if one.rank == rank]:
            del self._by_route[other]
        self._by_route[route] = Subscriber(rank, have)
        self._serve(route, waited=False)

    def _serve(self, route: bytes, *, waited: bool) -> None:
        """Send the latest version that applies, refer a rank that is too far behind to the learner, or let it wait."""
        subscriber = self._by_route[route]
        applying = [stream for stream in self._streams if stream.applies_to(subscriber.have)]
        if applying:
            subscriber.stream = applying[-1]
            is_new = waited and subscriber.stream is self._streams[-1]
            self._send(route, subscriber.stream.messages(waited=is_new))
            if subscriber.stream.is_complete:
                self._by_route.pop(route, None)
        elif self._streams and self._streams[-1].version > subscriber.have:
            self._send(route, [Message(ELSEWHERE)])
            self._by_route.pop(route, None)

    def _send(self, route: bytes, messages: Sequence[Message]) -> None:
        """Send messages; those to a rank that is gone are dropped."""
        for message in messages:
            frames = message.frames()
            try:
                self.socket.send_multipart([route, *frames], zmq.NOBLOCK)
            except zmq.ZMQError:
                self._by_route.pop(route, None)
                return
            self.traffic.add(message.purpose, self._by_route[route].rank, frames)
