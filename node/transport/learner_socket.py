"""The learner's end: takes and acknowledges experience, answers requests for weights, never waits for an actor.

Actors are identified by rank. Each connection of an actor is a separate peer of the socket, and an answer goes to the
connection that its message came from. In a broadcast (`broadcast`), the learner also assigns to each actor the rank to
get weights from, anew whenever an actor is lost or returns.
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

MOST_AT_ONCE = 64  # messages to take before other work
SAY_GOODBYE_MS = 2000
LOOK_FOR_PEERS_S = 2.0  # in a broadcast: how often to check which actors are still there
WAIT_FOR_ALL_S = 30.0  # for all actors, from the first check on; then others begin
MOST_PORT = 65_535


@dataclass
class Peer:
    """One actor process; after a restart, the new one with the same rank.

    Attributes:
        rank: its rank.
        life: see `actor_socket.Identity`.
        route: ZeroMQ's id of its latest connection.
        connection: the number of that connection, in this life.
        number: the number of the latest experience that arrived, in this life.
        lives: how often it was started.
        connections: how often it connected, in all its lives.
        duplicates: pieces that arrived twice, in all its lives.
        relay: the ZeroMQ endpoint at which it forwards weights; empty: it does not.
        is_gone: whether the latest assignment could not be sent to it.
        has_ended: whether it has said goodbye.
        figures: the figures of its goodbye.
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
        """Return the peer of the process that was started in its place."""
        counts = self.lives + 1, self.connections, self.duplicates
        return Peer(self.rank, life, route, 0, 0, *counts)


@dataclass(frozen=True)
class Arrival:
    """A piece of experience that has arrived.

    Attributes:
        rank: rank of the actor.
        experience: the piece.
        size_bytes: size of its message.
    """

    rank: int
    experience: Experience
    size_bytes: int


class LearnerSocket:
    """The learner's socket. To be used by one thread only.

    Args:
        address: torchrun's MASTER_ADDR and MASTER_PORT.
        encoder: encodes the published weights.
        ranks: number of ranks, including this one.
        topology: topology of a broadcast: star, chain or tree.

    Attributes:
        traffic: what was sent.
        peers: the actors that have sent a message, by rank.
        malformed: number of invalid messages.
    """

    def __init__(
        self, address: tuple[str, int], encoder: Encoder, ranks: int, topology: str = "star"
    ) -> None:
        self._encoder, self._ranks, self._topology = encoder, ranks, topology
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = make_router(self._context)  # nearly all that it sends are answers
        self._socket.bind(endpoint(address))
        self._update = 0
        self._published: dict[str, object] = {}
        self._to_acknowledge: set[int] = set()
        self._subscribed: dict[int, tuple[bytes, int]] = {}  # by rank: route, version of the actor
        self._parents: dict[int, int] = {}  # as assigned
        self._look_due = OnceIn(LOOK_FOR_PEERS_S)
        self._must_assign = False
        self._begins_by: float | None = None  # start of a broadcast, even if actors are missing
        self.traffic = Traffic()
        self.peers: dict[int, Peer] = {}
        self.malformed = 0
        self._is_finished = False
        self._changed_sum, self._changed_count = 0.0, 0

    @property
    def changed(self) -> float | None:
        """With `delta`, the mean share of changed numbers over all answers to a version that was known; else None."""
        return self._changed_sum / self._changed_count if self._changed_count else None

    def publish(self, update: int, state: State, advice: Mapping[str, object]) -> None:
        """Answer requests from now on with these parameters, whose version is the update's number, and this advice."""
        self._encoder.publish(update, state)
        self._published = {"advice": dict(advice), "published_at_s": time.time()}
        subscribed, self._subscribed = self._subscribed, {}
        for rank, (route, have) in subscribed.items():
            self._stream(route, rank, have, waited=True)

    def wait(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for a message, without taking it."""
        self._socket.poll(max(0.0, timeout_s) * 1000)

    def receive(
        self, update: int, timeout_s: float = 0.0, most: int = MOST_AT_ONCE
    ) -> list[Arrival]:
        """Wait at most `timeout_s` for a message, then take what has arrived, up to MOST_AT_ONCE messages.

        Args:
            update: number of the learner's latest update.
            timeout_s: how long to wait.
            most: the most pieces of experience to take; messages after them stay in the queue.
        """
        self._update = update
        self._must_assign |= self._topology in CHILDREN and self._look_due()
        arrivals: list[Arrival] = []
        self.wait(timeout_s)
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
            except Exception:  # an invalid message must not affect other actors
                self.malformed += 1
        self._acknowledge()
        if self._must_assign and self._has_begun():
            self._assign()
        return arrivals

    def finish(self, timeout_s: float) -> None:
        """Tell all actors to end, including late ones, and wait at most `timeout_s` for all goodbyes."""
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
        """Close the socket and free the port."""
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
        """Return the sender of a message. Its `route` is the connection on which it said hello last.

        Raises:
            ValueError: the sender is not of this run, or an actor's process from before its restart.
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
        """Take a piece only if it is the next in order: after a gap, all unacknowledged pieces are being sent again."""
        number = read_count(message.header, "number")
        self._to_acknowledge.add(peer.rank)
        if number <= peer.number:
            peer.duplicates += 1
        if number != peer.number + 1:
            return []
        peer.number = number  # even if it is invalid: else it would be sent for ever
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
        """Send newer weights now, or once there are some."""
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
        """Return header and body of the latest weights for an actor that has version `have`."""
        encoded = self._encoder.encode(have)
        if encoded.changed is not None:  # also where so many had changed that all numbers are sent
            self._changed_sum += encoded.changed
            self._changed_count += 1
        return self._head(have) | {"encoding": encoded.encoding}, encoded.body

    def _head(self, have: int) -> dict[str, object]:
        version = self._encoder.version
        return {"version": version, "update": self._update, "have": have, **self._published}

    def _has_begun(self) -> bool:
        """Return whether all actors are there or the wait is over. An actor that comes later changes assignments."""
        now = time.monotonic()
        if self._begins_by is None:
            self._begins_by = now + WAIT_FOR_ALL_S
        if len(self.peers) == self._ranks - 1:
            self._begins_by = now
        return now >= self._begins_by

    def _assign(self) -> None:
        """Tell each actor the rank to get weights from. One that cannot be told counts as gone until its next hello."""
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
                self._subscribed.pop(rank, None)  # it subscribed here before it was assigned
            self._parents[rank] = parent

    def _send(self, route: bytes, rank: int, message: Message) -> bool:
        """Send a message; return whether the actor is there. If not, the message is lost; the actor will ask again."""
        frames = message.frames()
        try:
            self._socket.send_multipart([route, *frames], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        self.traffic.add(message.purpose, rank, frames)
        return True
