"""Tests of weights that actors relay to each other over real sockets: shard by shard, around lost ranks."""

import contextlib
import socket
import threading
import time

import pytest
import torch
import zmq
from torch import nn

from node.transport import learner_socket, relay, sockets, subscribers
from node.transport.actor_socket import ActorSocket, Identity
from node.transport.broadcast import LEARNER, parents
from node.transport.learner_socket import LearnerSocket
from node.transport.messages import (
    ELSEWHERE,
    FOLLOW,
    PIECE_BYTES,
    SHARD,
    SUBSCRIBE,
    WEIGHTS,
    Message,
    read_message,
)
from node.transport.relay import Relay
from node.transport.shards import MOST_SHARDS, Stream, begin, split
from node.transport.weights import Encoder, decode
from protocol.ports import LEARNER_PORT_OFFSET

PATIENCE_S = 120.0
NUMBERS = 300_000  # several shards


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Look for peers without waiting for seconds."""
    monkeypatch.setattr(learner_socket, "LOOK_FOR_PEERS_S", 0.1)
    monkeypatch.setattr(relay, "LOOK_MS", 20)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("star", {1: 0, 2: 0, 4: 0, 5: 0, 7: 0}),
        ("chain", {1: 0, 2: 1, 4: 2, 5: 4, 7: 5}),
        ("tree", {1: 0, 2: 0, 4: 1, 5: 1, 7: 2}),
    ],
)
def test_who_sends_to_whom(topology, expected):
    assert parents(topology, [4, 1, 7, 2, 5]) == expected
    assert parents(topology, []) == {}


def test_a_stream_is_what_was_split_and_says_whom_it_is_for():
    body = bytes(range(256)) * 1000
    head, *shards = split(HEADER | {"version": 5, "have": 3}, body)
    assert {len(shard.body) for shard in shards[:-1]} == {PIECE_BYTES}
    stream = begin(head)
    assert (stream.version, stream.base, stream.count) == (5, None, len(shards))
    for shard in shards:
        assert not stream.is_complete
        stream.add(shard)
    assert stream.is_complete and stream.body() == body
    assert [stream.applies_to(have) for have in (-1, 3, 4, 5)] == [True, True, True, False]
    head.header["encoding"] = "delta"
    assert [begin(head).applies_to(have) for have in (-1, 3, 4, 5)] == [False, True, False, False]
    assert stream.messages(waited=True)[0].header["waited"] is True
    late = stream.messages(waited=False)
    assert late[0].header["waited"] is False
    assert late[1:] == shards


HEADER = {"published_at_s": 1.0, "encoding": "f32", "advice": {}, "waited": True}
HEAD = HEADER | {"version": 5, "have": 3, "shards": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"shards": 0},
        {"shards": MOST_SHARDS + 1},
        {"version": "5"},
        {"published_at_s": None},
        {"published_at_s": float("nan")},
        {"encoding": "f16"},
        {"encoding": ["f32"]},
        {"advice": None},
        {"waited": 1},
    ],
)
def test_a_head_of_no_stream_is_refused(wrong):
    with pytest.raises(ValueError, match=r"."):
        begin(Message(WEIGHTS, HEAD | wrong))


@pytest.mark.parametrize("number", [1, -1, "0", 5])
def test_a_shard_that_is_not_the_next_is_refused(number):
    stream = begin(Message(WEIGHTS, HEAD))
    with pytest.raises(ValueError, match=r"."):
        stream.add(Message(SHARD, {"shard": number}))


class Actor:
    """The sockets and the model of one actor process."""

    def __init__(self, address, rank, ranks, topology):
        torch.manual_seed(rank)
        me = Identity(rank, time.time_ns())
        self.rank = rank
        self.relay = Relay(address, me, ranks)
        if topology == "star":
            self.relay.follow(LEARNER, "")
        self.socket = ActorSocket(address, me, 4, self.relay.port)
        self.model = nn.ParameterDict({"w": torch.rand(NUMBERS)})
        self.have, self.sources = -1, []
        self.parent = 0

    def turn(self):
        for message in self.socket.receive(0.0):
            if message.kind == FOLLOW:
                self.parent = message.header["parent"]
                self.relay.follow(self.parent, message.header["place"])
        for received in self.relay.receive():
            decode(received.header["encoding"], received.body, self.model)
            self.have = received.header["version"]
            self.sources.append(received.receipt.source)

    def close(self):
        self.socket._connected = False  # send no goodbye
        self.socket.close({})
        return self.relay.close()


class Broadcast:
    """A learner and its actors, all in this process."""

    def __init__(self, topology, actors, encoding="f32"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1", probe.getsockname()[1] - LEARNER_PORT_OFFSET
        self.encoder = Encoder(encoding)
        self.learner = LearnerSocket(self.address, self.encoder, actors + 1, topology)
        self.weights = torch.zeros(NUMBERS)
        self.version = 0
        self.publish(0)
        self.ranks, self.topology = actors + 1, topology
        self.actors = [self.actor(rank) for rank in range(1, self.ranks)]

    def actor(self, rank):
        return Actor(self.address, rank, self.ranks, self.topology)

    def publish(self, version, changed=NUMBERS):
        self.version = version
        self.weights[:changed] = float(version)
        self.learner.publish(version, {"w": self.weights}, {})

    def until(self, true):
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline
            self.learner.receive(self.version, 0.01)
            for actor in self.actors:
                actor.turn()

    def all_have(self, version):
        return all(actor.have == version for actor in self.actors)

    def settles(self, parents):
        """Return whether every relay follows the right parent and waits for its data."""
        relays = [actor.relay for actor in self.actors]
        sources = [relay._thread and relay._source.rank for relay in relays]
        return sources == list(parents.values()) and all(relay._has_asked for relay in relays)

    def close(self):
        for actor in self.actors:
            actor.close()
        self.learner.close()


@contextlib.contextmanager
def broadcast(topology, actors, encoding="f32"):
    made = Broadcast(topology, actors, encoding)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("topology", ["star", "chain", "tree"])
def test_each_version_reaches_all_by_the_way_that_its_topology_says(topology):
    with broadcast(topology, 3) as made:
        expected = parents(topology, [1, 2, 3])
        made.until(lambda: made.all_have(0) and made.settles(expected))
        sent = made.learner.traffic.bytes_by_purpose()["weights"]
        for version in (5, 10, 15):
            made.publish(version)
            made.until(lambda: made.all_have(made.version) and made.settles(expected))
            for actor in made.actors:
                assert torch.equal(actor.model["w"], made.weights)
                assert actor.sources[-1] == expected[actor.rank]
        copies = sum(parent == 0 for parent in expected.values())
        more = made.learner.traffic.bytes_by_purpose()["weights"] - sent
        assert more == pytest.approx(3 * copies * 4 * NUMBERS, rel=0.01)
        passed_on = [actor.close().bytes_by_purpose().get("weights", 0) for actor in made.actors]
        made.actors.clear()
        for rank, count in enumerate(passed_on, 1):
            children = sum(parent == rank for parent in expected.values())
            assert count >= 3 * children * 4 * NUMBERS


def test_who_is_behind_one_that_is_gone_gets_weights_from_before_it_and_who_is_back_takes_its_place():
    with broadcast("chain", 3) as made:
        made.until(lambda: made.all_have(0) and made.settles({1: 0, 2: 1, 3: 2}))
        made.actors.pop(1).close()
        made.until(lambda: made.settles({1: 0, 3: 1}))
        made.publish(5)
        made.until(lambda: made.all_have(5))
        assert made.actors[1].sources[-1] == 1
        made.actors.insert(1, made.actor(2))
        made.until(lambda: made.all_have(5) and made.settles({1: 0, 2: 1, 3: 2}))
        made.publish(10)
        made.until(lambda: made.all_have(10))
        assert made.actors[2].sources[-1] == 2


def test_nobody_is_told_whom_to_follow_before_all_are_there_or_were_waited_for():
    with broadcast("chain", 2) as made:
        made.learner._ranks = 4  # one more than will connect
        made.until(lambda: len(made.learner.peers) == 2)
        until = time.monotonic() + 1.0
        made.until(lambda: time.monotonic() > until)
        assert [actor.relay._thread for actor in made.actors] == [None, None]
        made.learner._begins_by = time.monotonic()
        made.until(lambda: made.all_have(0) and made.settles({1: 0, 2: 1}))


def test_deltas_are_passed_on_and_who_comes_later_gets_all():
    with broadcast("chain", 2, "delta") as made:
        made.until(lambda: made.all_have(0) and made.settles({1: 0, 2: 1}))
        for version in (5, 10, 15):
            made.publish(version, changed=100)
            made.until(lambda: made.all_have(made.version))
        assert made.learner.changed == pytest.approx(100 / NUMBERS, rel=0.01)
        made.actors.pop(1).close()
        made.until(lambda: made.learner.peers[2].is_gone)
        for version in (20, 25):
            made.publish(version, changed=100)
            made.until(lambda: made.all_have(made.version))
        made.actors.append(made.actor(2))
        made.until(lambda: made.all_have(25) and made.settles({1: 0, 2: 1}))
        made.publish(30, changed=100)
        made.until(lambda: made.all_have(30))
        for actor in made.actors:
            assert torch.equal(actor.model["w"], made.weights)


class Parent:
    """A fake parent: sends to a relay what a test says."""

    def __init__(self):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        sockets.set_up(self.socket)
        self.socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.learner = "127.0.0.1", port - LEARNER_PORT_OFFSET

    def asked(self):
        self.route, *frames = self.socket.recv_multipart()
        message = read_message(frames)
        assert message.kind == SUBSCRIBE
        return message.header["have"]

    def send(self, *messages):
        for message in messages:
            self.socket.send_multipart([self.route, *message.frames()])


class Child:
    """A fake subscriber of a relay."""

    def __init__(self, context, port, rank=2, have=-1):
        self.socket = context.socket(zmq.DEALER)
        sockets.set_up(self.socket)
        self.socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.ask(rank, have)

    def ask(self, rank, have):
        header = {"rank": rank, "life": 1, "have": have}
        self.socket.send_multipart(Message(SUBSCRIBE, header).frames())

    def got(self):
        return read_message(self.socket.recv_multipart())


@pytest.fixture
def parent():
    made = Parent()
    yield made
    made.context.destroy(linger=0)


@pytest.fixture
def other():
    """Another parent that a relay may be told to follow."""
    made = Parent()
    yield made
    made.context.destroy(linger=0)


@pytest.fixture
def followed(parent):
    made = relay_of(parent)
    yield made
    made.close()


def relay_of(parent):
    made = Relay(parent.learner, Identity(1, 1), ranks=4)
    made.follow(LEARNER, "")
    return made


def weights(version, have=-1, encoding="f32", size=3 * PIECE_BYTES):
    header = HEADER | {"version": version, "have": have, "encoding": encoding}
    return split(header, bytes([version]) * size)


def until_waits(followed, rank=2):
    """Wait until a relay knows that a rank is subscribed."""
    deadline = time.monotonic() + PATIENCE_S
    while all(one.rank != rank for one in list(followed._subscribers._by_route.values())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def received(followed):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := followed.receive()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_a_shard_is_passed_on_before_the_next_has_come(parent, followed):
    child = Child(parent.context, followed.port)
    assert parent.asked() == -1
    head, *shards = weights(5)
    parent.send(head)
    assert child.got().header["version"] == 5
    for number, shard in enumerate(shards):
        assert not followed.receive()
        parent.send(shard)
        assert child.got() == Message(SHARD, {"shard": number}, shard.body)
    assert received(followed)[0].body == bytes([5]) * 3 * PIECE_BYTES
    assert parent.asked() == 5
    late = Child(parent.context, followed.port, rank=3)  # gets the shards that have arrived
    assert [late.got().kind for _ in range(4)] == [WEIGHTS, SHARD, SHARD, SHARD]


def test_a_version_that_breaks_off_is_no_version_and_its_place_takes_the_next(parent, followed):
    child = Child(parent.context, followed.port)
    assert parent.asked() == -1
    until_waits(followed)
    head, *shards = weights(5)
    parent.send(head, shards[0], *weights(7))
    got = [child.got() for _ in range(6)]
    assert [message.kind for message in got] == [WEIGHTS, SHARD, WEIGHTS, SHARD, SHARD, SHARD]
    assert [one.header["version"] for one in received(followed)] == [7]
    assert parent.asked() == 7


def test_who_waited_when_it_was_published_is_told_from_who_asked_later(parent, followed):
    assert parent.asked() == -1
    head, *shards = weights(5)
    early = Child(parent.context, followed.port)
    until_waits(followed)
    parent.send(head)
    assert early.got().header["waited"] is True
    late = Child(parent.context, followed.port, rank=3)
    assert late.got().header["waited"] is False
    parent.send(*shards)
    assert received(followed)[0].receipt.waited is True


NONSENSE = [
    [[b"{"]],
    [[b"[" * 100_000]],
    [[b'{"kind": []}']],
    [[b'{"kind": "weights", "version": 9}']],
    [Message(SHARD, {"shard": 0}, b"x").frames()],
    [weights(9)[0].frames(), Message(SHARD, {"shard": 2}, b"x").frames()],
]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_who_sends_nonsense_is_left_for_the_learner(parent, followed, other, nonsense):
    assert parent.asked() == -1
    followed.follow(3, other.endpoint)
    assert other.asked() == -1
    for frames in nonsense:
        other.socket.send_multipart([other.route, *frames])
    assert parent.asked() == -1
    parent.send(*weights(5))
    assert [one.header["version"] for one in received(followed)] == [5]


def test_a_learner_that_sends_nonsense_is_a_fault_that_is_told(parent, followed):
    assert parent.asked() == -1
    parent.socket.send_multipart([parent.route, *NONSENSE[3][0]])
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(RuntimeError, match="the learner sent what are no weights"):
        while time.monotonic() < deadline:
            followed.receive()
            time.sleep(0.01)


HOSTILE = [
    [b"{"],
    [b'{"kind": []}'],
    [b'{"kind": "bye"}'],
    *([b'{"kind": "subscribe", "rank": %s, "have": -1}' % rank] for rank in (b'"x"', b"-1", b"0")),
    *([b'{"kind": "subscribe", "rank": %s, "have": -1}' % rank] for rank in (b"1", b"4", b"99")),
]


def test_nonsense_from_who_subscribes_costs_nobody_else_anything(parent, followed):
    with parent.context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(f"tcp://127.0.0.1:{followed.port}")
        for frames in HOSTILE:
            stranger.send_multipart(frames)
        child = Child(parent.context, followed.port)
        parent.asked()
        parent.send(*weights(5))
        assert child.got().header["version"] == 5
        deadline = time.monotonic() + PATIENCE_S
        while followed._subscribers.malformed < len(HOSTILE):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_asking_again_while_something_comes_gets_nothing_twice(parent, followed, monkeypatch):
    child = Child(parent.context, followed.port)
    assert parent.asked() == -1
    head, *shards = weights(5)
    parent.send(head)
    assert child.got().kind == WEIGHTS
    subscribe, asked = followed._subscribers._subscribe, []

    def counted(route, message):
        asked.append(message)
        subscribe(route, message)

    monkeypatch.setattr(followed._subscribers, "_subscribe", counted)
    for _ in range(20):
        child.ask(2, -1)
    deadline = time.monotonic() + PATIENCE_S
    while len(asked) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send(*shards)
    assert [child.got().kind for _ in shards] == [SHARD] * 3
    assert parent.asked() == 5
    parent.send(*weights(6))
    child.ask(2, 5)
    assert child.got().header["version"] == 6


def test_who_is_behind_is_sent_the_delta_from_what_it_has_or_elsewhere(parent, monkeypatch):
    monkeypatch.setattr(subscribers, "KEPT_STREAMS", 2)
    followed = relay_of(parent)
    try:
        assert parent.asked() == -1
        parent.send(*weights(5))
        for version in (6, 7, 8):
            assert parent.asked() == version - 1
            parent.send(*weights(version, version - 1, "delta"))
        assert parent.asked() == 8
        child = Child(parent.context, followed.port, have=6)
        assert [child.got().header.get("version") for _ in range(4)] == [7, None, None, None]
        child.ask(2, 7)
        assert [child.got().header.get("version") for _ in range(4)] == [8, None, None, None]
        child.ask(2, 4)
        assert child.got().kind == ELSEWHERE
        child.ask(2, 9)  # it got newer versions from another parent
        parent.send(*weights(10, 8, "delta"))
        assert parent.asked() == 10
        assert child.got().kind == ELSEWHERE
        assert [one.header["version"] for one in received(followed)] == [5, 6, 7, 8, 10]
    finally:
        followed.close()


def test_who_is_sent_elsewhere_gets_a_version_of_the_learner_and_comes_back(
    parent, followed, other
):
    assert parent.asked() == -1
    followed.follow(3, other.endpoint)
    assert other.asked() == -1
    other.send(Message(ELSEWHERE))
    assert parent.asked() == -1
    parent.send(*weights(5))
    assert other.asked() == 5
    other.send(*weights(6, 5, "delta"))
    versions = []
    while len(versions) < 2:
        versions += [one.header["version"] for one in received(followed)]
    assert versions == [5, 6]


def test_a_rank_that_cannot_be_reached_is_tried_again_later(parent, other, monkeypatch):
    monkeypatch.setattr(relay, "UNREACHABLE_S", 0.5)
    monkeypatch.setattr(relay, "RETRY_S", 1.0)
    other.socket.unbind(other.endpoint)
    followed = relay_of(parent)
    try:
        assert parent.asked() == -1
        followed.follow(3, other.endpoint)
        assert parent.asked() == -1  # again, because that rank cannot be reached
        parent.send(*weights(5))
        assert received(followed)[0].header["version"] == 5
        other.socket.bind(other.endpoint)
        assert other.asked() == 5
    finally:
        followed.close()


def test_weights_that_are_of_no_use_are_got_whole_from_the_learner(parent, followed, other):
    assert parent.asked() == -1
    parent.send(*weights(5))
    assert parent.asked() == 5
    followed.follow(3, other.endpoint)
    assert other.asked() == 5
    followed.start_over()
    assert parent.asked() == -1
    parent.send(*weights(5))
    versions = []
    while len(versions) < 2:
        versions += [one.header["version"] for one in received(followed)]
    assert versions == [5, 5]


def test_a_process_that_takes_nothing_is_sent_no_more_than_so_many_versions(parent, followed):
    for version in range(1, relay.MOST_WAITING + 1):
        parent.asked()
        parent.send(*weights(version, size=10))
    parent.socket.setsockopt(zmq.RCVTIMEO, 1000)
    with pytest.raises(zmq.Again):
        parent.asked()
    assert len(followed.receive()) == relay.MOST_WAITING
    parent.socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
    assert parent.asked() == relay.MOST_WAITING


def test_what_is_coming_in_when_it_is_over_is_passed_on_to_its_end(parent, followed):
    child = Child(parent.context, followed.port)
    assert parent.asked() == -1
    head, *shards = weights(5)
    parent.send(head, shards[0])
    assert [child.got().kind for _ in range(2)] == [WEIGHTS, SHARD]
    closing = threading.Thread(target=followed.close)
    closing.start()
    time.sleep(0.5)
    parent.send(*shards[1:])
    assert [child.got().kind for _ in range(2)] == [SHARD, SHARD]
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_a_relay_follows_whom_it_is_told_to(parent, followed, other):
    assert parent.asked() == -1
    parent.send(weights(5)[0])  # without any shard
    followed.follow(3, other.endpoint)
    followed.follow(3, other.endpoint)
    assert other.asked() == -1
    other.send(*weights(6))
    found = received(followed)
    assert [(one.header["version"], one.receipt.source) for one in found] == [(6, 3)]
    assert other.asked() == 6


def test_who_is_told_nothing_asks_nobody_and_ends(parent):
    silent = Relay(parent.learner, Identity(1, 1), ranks=4)
    parent.socket.setsockopt(zmq.RCVTIMEO, 500)
    with pytest.raises(zmq.Again):
        parent.asked()
    assert silent.close().bytes_by_purpose() == {}


def test_a_complete_stream_takes_no_more():
    stream = Stream(Message(WEIGHTS), 5, None, 0)
    with pytest.raises(ValueError, match="not the next"):
        stream.add(Message(SHARD, {"shard": 0}))
