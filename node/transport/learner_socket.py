"""The learner's end: takes and acknowledges what actors send, answers requests for weights, never waits for one.

An actor is its rank; each of its connections is another peer of the socket, and answers go where a message came from.
In a broadcast (`broadcast`) it also says who gets weights from whom: who is gone, and who is back, changes that.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import zmq

from node.base.once_in import OnceIn
from node.transport.broadcast import CHILDREN, LEARNER, parents
from node.transport.messages import (
    ACKNOWLEDGED,
    ASK,
    BYE,
    EXPERIENCE,
    FINISHED,
    FOLLOW,
    HELLO,
    PARTED,
    SUBSCRIBE,
    WEIGHTS,
    Experience,
    Message,
    read_count,
    read_figures,
    read_message,
    read_shapes,
    unpack_arrays,
)
from node.transport.shards import split
from node.transport.sockets import endpoint, in_brackets, make_router
from node.transport.traffic import Traffic
from node.transport.weights import Encoder, State

MOST_AT_ONCE = 64  # messages that are taken before anything else is done
SAY_GOODBYE_MS = 2000
LOOK_FOR_PEERS_S = 2.0  # in a broadcast: who is still there?
WAIT_FOR_ALL_S = 30.0  # from when the first has come; then the others begin without who has not
MOST_PORT = 65_535


@dataclass
class Peer:
    """One actor process; after a restart, the new one with the same rank.

    Attributes:
        rank: its rank.
        life: see `actor_socket.Identity`.
        route: of its latest connection.
        connection: the number of that connection, in this life.
        number: of the latest experience that came, in this life.
        lives: how often it was started.
        connections: how often it was connected, in all its lives.
        duplicates: pieces that came twice, in all its lives.
        relay: the ZeroMQ endpoint at which it passes weights on; empty: it does not.
        is_gone: whether nothing could be sent to it.
        has_ended: whether it has said goodbye.
        figures: those of its last message.
    """

    rank: int
    life: int
    route: bytes
    connection: int = 0
    number: int = 0
    lives: int = 1
    connections: int = 0
    duplicates: int = 0
    relay: str = ""
    is_gone: bool = False
    has_ended: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)

    def reborn(self, life: int, route: bytes) -> "Peer":
        """The process that was started in its place."""
        counts = self.lives + 1, self.connections, self.duplicates
        return Peer(self.rank, life, route, 0, 0, *counts)


@dataclass(frozen=True)
class Arrival:
    """A piece of experience that has come.

    Attributes:
        rank: of the actor.
        experience: what it did.
        size_bytes: that it took.
    """

    rank: int
    experience: Experience
    size_bytes: int


class LearnerSocket:
    """Used by one thread.

    Args:
        address: torchrun's MASTER_ADDR and MASTER_PORT.
        encoder: makes bytes of what is published.
        ranks: how many there are, this one among them.
        topology: of a broadcast: star, chain or tree.

    Attributes:
        traffic: what was sent.
        peers: the actors that were heard of, by rank.
        malformed: messages that were none.
    """

    def __init__(
        self, address: tuple[str, int], encoder: Encoder, ranks: int, topology: str = "star"
    ) -> None:
        self._encoder, self._ranks, self._topology = encoder, ranks, topology
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = make_router(self._context)  # nearly all that it sends is an answer
        self._socket.bind(endpoint(address))
        self._update = 0
        self._published: dict[str, object] = {}
        self._to_acknowledge: set[int] = set()
        self._subscribed: dict[int, tuple[bytes, int]] = {}  # by rank: route, version that it has
        self._parents: dict[int, int] = {}  # as told
        self._look_due = OnceIn(LOOK_FOR_PEERS_S)
        self._must_assign = False
        self._begins_by: float | None = None  # a broadcast, whoever is missing
        self.traffic = Traffic()
        self.peers: dict[int, Peer] = {}
        self.malformed = 0
        self._is_finished = False
        self._changed_sum, self._changed_count = 0.0, 0

    @property
    def changed(self) -> float | None:
        """Of delta: the share of numbers that differed, on average over answers."""
        return self._changed_sum / self._changed_count if self._changed_count else None

    def publish(self, update: int, state: State, advice: Mapping[str, object]) -> None:
        """Answer requests from now on with these parameters (the version is the number of the update) and advice."""
        self._encoder.publish(update, state)
        self._published = {"advice": dict(advice), "published_at_s": time.time()}
        subscribed, self._subscribed = self._subscribed, {}
        for rank, (route, have) in subscribed.items():
            self._stream(route, rank, have, waited=True)

    def receive(
        self, update: int, timeout_s: float = 0.0, most: int = MOST_AT_ONCE
    ) -> list[Arrival]:
        """Take what has come, after waiting for something that long; `update` is how far the learner is.

        Of experience no more than `most` pieces: what is behind them stays where it is.
        """
        self._update = update
        self._must_assign |= self._topology in CHILDREN and self._look_due()
        arrivals: list[Arrival] = []
        self._socket.poll(max(0.0, timeout_s) * 1000)
        for _ in range(MOST_AT_ONCE):
            if len(arrivals) >= most:
                break
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            try:
                route, *frames = (part.bytes for part in parts)
                arrivals += self._take(route, frames, str(parts[-1].get("Peer-Address")))
            except Exception:  # whatever it is that somebody sent, it costs nobody else anything
                self.malformed += 1
        self._acknowledge()
        if self._must_assign and self._has_begun():
            self._assign()
        return arrivals

    def finish(self, timeout_s: float) -> None:
        """Tell all actors that it is over, also those that come only now, and wait that long for all goodbyes."""
        self._is_finished = True
        deadline = time.monotonic() + timeout_s
        for peer in self.peers.values():
            self._send(peer.route, peer.rank, Message(FINISHED, {"update": self._update}))
        while sum(peer.has_ended for peer in self.peers.values()) < self._ranks - 1:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            self.receive(self._update, left_s)

    def close(self) -> None:
        """Let go of the port."""
        self._socket.close(SAY_GOODBYE_MS if self._is_finished else 0)
        self._context.term()

    def _take(self, route: bytes, frames: Sequence[bytes], ip: str) -> list[Arrival]:
        message = read_message(frames)
        peer = self._peer(route, message)
        if message.kind == HELLO and 0 < (port := read_count(message.header, "relay")) <= MOST_PORT:
            peer.relay = f"tcp://{in_brackets(ip)}:{port}"
            self._parents.pop(peer.rank, None)
            self._must_assign = self._topology in CHILDREN
        if message.kind == BYE:
            peer.has_ended, peer.figures = True, read_figures(message.header)
            self._send(route, peer.rank, Message(PARTED))
        elif self._is_finished:
            self._send(route, peer.rank, Message(FINISHED, {"update": self._update}))
        elif message.kind == EXPERIENCE:
            return self._take_experience(peer, message, sum(map(len, frames)))
        elif message.kind == ASK:
            self._answer(route, peer.rank, read_count(message.header, "have"))
        elif message.kind == SUBSCRIBE:
            self._subscribe(route, peer.rank, read_count(message.header, "have"))
        return []

    def _peer(self, route: bytes, message: Message) -> Peer:
        """Who sent it. What is said to an actor goes to the connection on which it said hello last.

        Raises:
            ValueError: nobody of this run, or what an actor was before it was started again.
        """
        rank, life = (read_count(message.header, name) for name in ("rank", "life"))
        if not 0 < rank < self._ranks:
            raise ValueError(f"a message of rank {rank}")
        peer = self.peers.get(rank) or Peer(rank, life, route)
        if life < peer.life:
            raise ValueError("a message of a former life")
        if life > peer.life:
            peer = peer.reborn(life, route)
        self.peers[rank] = peer
        if message.kind == HELLO:
            connection = read_count(message.header, "connection")
            peer.connections += 1
            if connection > peer.connection:
                peer.connection, peer.route, peer.is_gone = connection, route, False
        return peer

    def _take_experience(self, peer: Peer, message: Message, size_bytes: int) -> list[Arrival]:
        """What follows what came before; of a gap nothing: all that has no answer is on its way once more."""
        number = read_count(message.header, "number")
        self._to_acknowledge.add(peer.rank)
        if number <= peer.number:
            peer.duplicates += 1
        if number != peer.number + 1:
            return []
        peer.number = number  # whatever it is: it would be sent for ever
        arrays = unpack_arrays(read_shapes(message.header), message.body)
        experience = Experience(arrays, read_figures(message.header))
        return [Arrival(peer.rank, experience, size_bytes)]

    def _acknowledge(self) -> None:
        """Send each actor one acknowledgement: the number up to which its messages have arrived."""
        for rank in self._to_acknowledge:
            peer = self.peers[rank]
            header = {"number": peer.number, "update": self._update}
            self._send(peer.route, rank, Message(ACKNOWLEDGED, header))
        self._to_acknowledge.clear()

    def _answer(self, route: bytes, rank: int, have: int) -> None:
        if have == self._encoder.version:
            self._send(route, rank, Message(WEIGHTS, self._head(have)))
        else:
            self._send(route, rank, Message(WEIGHTS, *self._encoded(have)))

    def _subscribe(self, route: bytes, rank: int, have: int) -> None:
        """Newer weights now, or once there are some."""
        self._subscribed.pop(rank, None)
        if have == self._encoder.version:
            self._subscribed[rank] = route, have
        else:
            self._stream(route, rank, have, waited=False)

    def _stream(self, route: bytes, rank: int, have: int, *, waited: bool) -> None:
        header, body = self._encoded(have)
        for message in split({**header, "waited": waited}, body):
            if not self._send(route, rank, message):
                return

    def _encoded(self, have: int) -> tuple[dict[str, object], bytes]:
        """The latest weights, for an actor that has version `have`."""
        encoded = self._encoder.encode(have)
        if encoded.encoding == "delta":
            self._changed_sum += encoded.changed
            self._changed_count += 1
        return self._head(have) | {"encoding": encoded.encoding}, encoded.body

    def _head(self, have: int) -> dict[str, object]:
        version = self._encoder.version
        return {"version": version, "update": self._update, "have": have, **self._published}

    def _has_begun(self) -> bool:
        """Whether all actors are there, or were waited for. One that comes later changes whom the others follow."""
        now = time.monotonic()
        if self._begins_by is None:
            self._begins_by = now + WAIT_FOR_ALL_S
        if len(self.peers) == self._ranks - 1:
            self._begins_by = now
        return now >= self._begins_by

    def _assign(self) -> None:
        """Tell each actor whom it gets weights from. One that cannot be told is gone until it says hello again."""
        self._must_assign = False
        there = {
            rank: peer
            for rank, peer in self.peers.items()
            if peer.relay and not (peer.is_gone or peer.has_ended)
        }
        for rank, parent in parents(self._topology, there).items():
            place = "" if parent == LEARNER else there[parent].relay
            follow = Message(FOLLOW, {"parent": parent, "place": place})
            there[rank].is_gone = not self._send(there[rank].route, rank, follow)
            if parent != self._parents.get(rank, LEARNER):
                self._subscribed.pop(rank, None)  # it has asked here before it knew
            self._parents[rank] = parent

    def _send(self, route: bytes, rank: int, message: Message) -> bool:
        """Send a message; returns whether the actor is there. If not, it is lost, and will be asked for again."""
        frames = message.frames()
        try:
            self._socket.send_multipart([route, *frames], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        self.traffic.add(message.purpose, rank, frames)
        return True
