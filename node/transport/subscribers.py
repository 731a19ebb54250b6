"""The ranks that get weights from an actor: each waits for a newer version, or is being sent one shard by shard."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from node.transport.messages import ELSEWHERE, SUBSCRIBE, Message, read_count, read_message
from node.transport.shards import Stream
from node.transport.sockets import make_router
from node.transport.traffic import Traffic

KEPT_STREAMS = 8  # deltas: for who is behind by a few
MOST_AT_ONCE = 64  # messages that are read before anything else is done
FLUSH_MS = 2000


@dataclass
class Subscriber:
    """One connection.

    Attributes:
        rank: whose.
        have: the version that it has.
        stream: what it is being sent; None: it waits.
    """

    rank: int
    have: int
    stream: Stream | None = None


class Subscribers:
    """Used by one thread.

    Args:
        context: of ZeroMQ.
        ip: to listen at.
        me: this rank.
        ranks: how many there are.

    Attributes:
        socket: to be polled.
        port: at which it listens.
        malformed: messages that were none.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", ip: str, me: int, ranks: int
    ) -> None:
        self.socket = make_router(context)  # it has no more to send than the streams that are kept
        self.socket.bind(f"tcp://{ip}:0")
        bound: bytes = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        self.port = int(bound.rpartition(b":")[2])
        self._me, self._ranks = me, ranks
        self._by_route: dict[bytes, Subscriber] = {}
        self._streams: deque[Stream] = deque(maxlen=KEPT_STREAMS)  # the last is the latest
        self.traffic = Traffic()
        self.malformed = 0

    def begin(self, stream: Stream) -> None:
        """A newer version begins to come; the ranks that wait for it get each shard as it comes."""
        if stream.base is None:
            self._streams.clear()  # it serves all
        self._streams.append(stream)
        for route, subscriber in list(self._by_route.items()):
            if subscriber.stream is None:
                self._serve(route, waited=True)

    def pass_on(self, stream: Stream) -> None:
        """The latest shard of a stream that has begun."""
        for route, subscriber in list(self._by_route.items()):
            if subscriber.stream is stream:
                self._send(route, stream.shards[-1:])
                if stream.is_complete:
                    self._by_route.pop(route, None)  # it asks again when it has all

    def abort(self, stream: Stream) -> None:
        """No more of it will come: who was sent a part waits for another version."""
        if stream in self._streams:
            self._streams.remove(stream)
        for subscriber in self._by_route.values():
            if subscriber.stream is stream:
                subscriber.stream = None

    def clear(self) -> None:
        """What is kept is of no use."""
        for stream in list(self._streams):
            self.abort(stream)

    def receive(self) -> None:
        """Read what has come."""
        for _ in range(MOST_AT_ONCE):
            try:
                route, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._subscribe(route, read_message(frames))
            except Exception:  # whatever somebody sent, it costs nobody else anything
                self.malformed += 1

    def close(self) -> None:
        """Let what was sent go out, for a while."""
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
        """Send the latest version that applies. One too far behind is sent to the learner; one that has all waits."""
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
