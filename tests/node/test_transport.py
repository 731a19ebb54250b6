"""Tests of messages between a learner and its actors over real sockets that break, and of how weights are encoded."""

import contextlib
import json
import math
import selectors
import socket
import threading
import time

import numpy as np
import pytest
import torch
import zmq
from torch import nn

from node.actor_learner.staleness import (
    MOST_VALUES,
    Distribution,
    Staleness,
    oldest_lag,
    require_times,
)
from node.transport import actor_socket, sockets
from node.transport.actor_socket import ActorSocket, Identity
from node.transport.learner_socket import LearnerSocket
from node.transport.messages import (
    EXPERIENCE,
    FINISHED,
    PIECE_BYTES,
    WEIGHTS,
    Experience,
    Message,
    pack_arrays,
    read_message,
    require_arrays,
    unpack_arrays,
)
from node.transport.sockets import endpoint
from node.transport.weights import Encoder, decode
from protocol.ports import LEARNER_PORT_OFFSET

PATIENCE_S = 120.0


def piece(number, steps=3):
    rng = np.random.default_rng(number)
    arrays = {
        "obs": rng.random((steps, 2, 5)) < 0.5,
        "rewards": rng.random((steps, 2)).astype(np.float32),
        "version": np.full(steps, number),
        "made_at_s": np.full(steps, 1000.0 + number),
        "ended": np.array(True),
    }
    return Experience(arrays, {"number": number})


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", probe.getsockname()[1] - LEARNER_PORT_OFFSET


@pytest.fixture(autouse=True)
def goodbye(monkeypatch):
    """Shorten the wait for goodbyes, as most learners here do not receive any."""
    monkeypatch.setattr(actor_socket, "SAY_GOODBYE_S", 0.2)


@pytest.fixture
def address():
    return free_address()


@pytest.fixture
def learner(address):
    end = LearnerSocket(address, Encoder("f32"), ranks=3)
    end.publish(0, {"w": torch.zeros(3)}, {"level": 1})
    yield end
    end.close()


def learner_of_one(address):
    end = LearnerSocket(address, Encoder("f32"), ranks=2)
    end.publish(0, {"w": torch.zeros(3)}, {})
    return end


@contextlib.contextmanager
def actor(address, rank=1, life=0, window=16):
    end = ActorSocket(address, Identity(rank, life), window)
    try:
        yield end
    finally:
        end.close({"rank": rank})


def until(true, *ends):
    """Run the ends until a condition holds; return the experience that reached the learner."""
    arrived, deadline = [], time.monotonic() + PATIENCE_S
    while not true(arrived):
        assert time.monotonic() < deadline
        for end in ends:
            if isinstance(end, LearnerSocket):
                arrived += end.receive(7, 0.01)
            else:
                end.receive(0.01)
    return arrived


def test_the_kernel_sizes_the_send_buffers():
    """A fixed one of 256 KiB kept a link of 170 ms to 1.5 MB/s, whatever its rate."""
    with zmq.Context() as context, sockets.make_router(context) as router:
        assert router.getsockopt(zmq.SNDBUF) == -1


def numbers(arrived):
    return [one.experience.figures["number"] for one in arrived]


def test_a_message_is_what_its_frames_say_and_no_frame_is_long():
    body = bytes(range(256)) * 1000
    frames = Message(EXPERIENCE, {"number": 3}, body).frames()
    assert len(frames) == 1 + -(-len(body) // PIECE_BYTES)
    assert max(map(len, frames)) <= PIECE_BYTES
    assert read_message(frames) == Message(EXPERIENCE, {"number": 3}, body)


@pytest.mark.parametrize(
    "frames", [[], [b""], [b"{"], [b"[]"], [b'{"kind": "other"}'], [b'{"rank": 1}'], [b"\xff"]]
)
def test_what_is_no_message_is_a_value_error(frames):
    with pytest.raises(ValueError, match=r"."):
        read_message(frames)


def test_arrays_arrive_as_they_were_bits_in_an_eighth():
    arrays = dict(piece(1, steps=40).arrays)
    shapes, body = pack_arrays(arrays)
    assert len(body) < sum(array.nbytes for array in arrays.values())
    found = unpack_arrays(shapes, body)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array), name
    with pytest.raises(ValueError, match="none"):
        unpack_arrays(shapes, body[:-3])
    with pytest.raises(ValueError, match="none"):
        unpack_arrays({"there is none": [1]}, body)


def test_experience_arrives_once_in_order_and_no_more_than_the_window_is_under_way(
    address, learner
):
    with actor(address, window=4) as end:
        for number in range(1, 5):
            assert not end.is_full
            end.hand_over(piece(number))
        assert end.is_full
        until(lambda _: end.connections, end)
        assert end.is_full  # it was sent, but not acknowledged
        arrived = until(lambda _: not end.unanswered, learner, end)
        assert numbers(arrived) == [1, 2, 3, 4]
        assert not end.is_full
        assert end.learner_update == 7
        assert {one.rank for one in arrived} == {1}
        assert learner.peers[1].duplicates == 0
        first = arrived[0].experience
        assert np.array_equal(first.arrays["obs"], piece(1).arrays["obs"])
        assert arrived[0].size_bytes > len(pack_arrays(piece(1).arrays)[1])


def test_weights_come_when_they_are_asked_for_and_only_if_they_are_newer(address, learner):
    got = []
    with actor(address) as end:

        def ask(have):
            end.ask(have)
            assert end.has_asked
            deadline = time.monotonic() + PATIENCE_S
            while end.has_asked:
                assert time.monotonic() < deadline
                learner.receive(7, 0.01)
                got.extend(end.receive(0.01))

        ask(-1)
        ask(0)
        assert end.cut_off_s == 0
        learner.publish(5, {"w": torch.ones(3)}, {"level": 2})
        ask(0)
    assert [message.kind for message in got] == [WEIGHTS] * 3
    assert [message.header["version"] for message in got] == [0, 0, 5]
    assert [message.header["advice"]["level"] for message in got] == [1, 1, 2]
    assert [bool(message.body) for message in got] == [True, False, True]
    model = nn.ParameterDict({"w": torch.zeros(3)})
    decode(got[2].header["encoding"], got[2].body, model)
    assert model["w"].tolist() == [1, 1, 1]
    assert end.traffic.bytes_by_purpose().keys() == {"control"}
    assert learner.traffic.bytes_by_purpose()["weights"] > 0


def test_the_end_reaches_actors_and_their_goodbyes_the_learner(address, learner, monkeypatch):
    """It also reaches an actor that the learner has not heard from before."""
    monkeypatch.setattr(actor_socket, "SAY_GOODBYE_S", PATIENCE_S)
    over = threading.Event()

    def act(rank):
        time.sleep(rank - 1)
        with actor(address, rank) as end:
            end.ask(-1)
            while not any(message.kind == FINISHED for message in end.receive(0.01)):
                pass
        over.set()

    threads = [threading.Thread(target=act, args=(rank,)) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    until(lambda _: learner.peers, learner)
    learner.finish(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert over.is_set()
    assert {rank: peer.figures["rank"] for rank, peer in learner.peers.items()} == {1: 1, 2: 2}
    assert all(peer.has_ended for peer in learner.peers.values())


def test_nobody_is_waited_for_at_the_end_longer_than_said(address, learner):
    with actor(address) as end:
        end.ask(-1)
        until(lambda _: 1 in learner.peers, learner, end)
        began = time.monotonic()
        learner.finish(0.2)  # the actor does not receive
        assert 0.2 <= time.monotonic() - began < PATIENCE_S


class Proxy:
    """Carries at most `byte_s` bytes per second between an actor and its learner; `cut` breaks all connections."""

    def __init__(self, there, byte_s=None):
        self._there = ("127.0.0.1", there[1] + LEARNER_PORT_OFFSET)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1", self._listener.getsockname()[1] - LEARNER_PORT_OFFSET
        self._pairs = {}
        self._over, self._cut = threading.Event(), threading.Event()
        self._byte_s = byte_s
        self.hold = threading.Event()  # carry nothing while set
        self.carried = 0
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def cut(self):
        self._cut.set()
        while self._cut.is_set():
            time.sleep(0.001)

    def close(self):
        self._over.set()
        self._thread.join()
        self._drop()
        self._listener.close()

    def _drop(self):
        for end in self._pairs:
            end.close()
        self._pairs.clear()

    def _carry(self):
        while not self._over.is_set():
            if self._cut.is_set():
                self._drop()
                self._cut.clear()
            if self.hold.is_set():
                time.sleep(0.001)
                continue
            with selectors.DefaultSelector() as selector:
                for end in (self._listener, *self._pairs):
                    selector.register(end, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(0.005)]
            for end in ready:
                self._serve(end)

    def _serve(self, end):
        if end is self._listener:
            one, _ = self._listener.accept()
            if self._byte_s:  # otherwise the kernel buffers more than the test allows for
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            other = socket.create_connection(self._there)
            self._pairs |= {one: other, other: one}
        elif end in self._pairs:
            try:
                data = end.recv(4096)
                self._pairs[end].sendall(data)
                self.carried += len(data)
            except OSError:
                data = b""
            if data and self._byte_s:
                time.sleep(len(data) / self._byte_s)
            if not data:
                other = self._pairs.pop(end)
                self._pairs.pop(other)
                end.close()
                other.close()


@contextlib.contextmanager
def proxy_to(address, byte_s=None):
    proxy = Proxy(address, byte_s)
    try:
        yield proxy
    finally:
        proxy.close()


def test_connections_that_break_lose_nothing(address, learner):
    """Wherever the connection breaks, each piece arrives once, and requested weights arrive."""
    with proxy_to(address) as proxy, actor(proxy.address, window=8) as end:
        number, arrived, cut_at = 0, [], 0
        deadline = time.monotonic() + PATIENCE_S
        while len(arrived) < 200:
            assert time.monotonic() < deadline
            while number < 200 and not end.is_full:
                number += 1
                end.hand_over(piece(number, steps=400))
            if not end.has_asked:
                end.ask(-1)
            arrived += learner.receive(7, 0.001)
            end.receive(0.001)
            if proxy.carried - cut_at > 100_000 and end.connections < 5:
                cut_at = proxy.carried
                proxy.cut()
        assert numbers(arrived) == list(range(1, 201))
        assert end.connections == 5
        until(lambda _: not (end.has_asked or end.unanswered), learner, end)
        assert learner.peers[1].connections == 5


def test_what_is_handed_over_before_it_is_known_that_a_connection_broke_overtakes_nothing(
    address, learner
):
    """An actor checks its connection only between two steps; meanwhile ZeroMQ reconnects."""
    with proxy_to(address) as proxy, actor(proxy.address) as end:
        for number in (1, 2, 3):
            end.hand_over(piece(number))
        until(lambda arrived: len(arrived) == 3 and not end.unanswered, learner, end)
        proxy.hold.set()
        for number in (4, 5, 6):
            end.hand_over(piece(number))
        time.sleep(0.1)
        proxy.cut()
        proxy.hold.clear()
        time.sleep(1.0)
        end.hand_over(piece(7))
        arrived = until(lambda arrived: len(arrived) == 4 and not end.unanswered, learner, end)
        assert numbers(arrived) == [4, 5, 6, 7]


def test_a_learner_that_does_not_read_for_long_breaks_no_connection(address, learner, monkeypatch):
    """A full window waits, but heartbeats are still answered. Here a silence of 2 s ends a connection."""
    monkeypatch.setattr(sockets, "BEAT_MS", 200)
    monkeypatch.setattr(sockets, "SILENCE_MS", 2000)
    there = free_address()
    slow = LearnerSocket(there, Encoder("f32"), ranks=4)
    slow.publish(0, {"w": torch.zeros(3)}, {})
    try:
        with actor(there, window=64) as end:
            until(lambda _: end.connections, end)
            for number in range(1, 65):
                end.hand_over(piece(number))
            since = time.monotonic()
            while time.monotonic() - since < 5:
                end.receive(0.05)
            assert end.connections == 1 and end.cut_off_s == 0
            assert numbers(until(lambda arrived: len(arrived) == 64, slow, end)) == [*range(1, 65)]
            assert end.connections == 1
    finally:
        slow.close()


def test_a_silent_connection_is_closed_and_made_anew(address, monkeypatch):
    monkeypatch.setattr(sockets, "BEAT_MS", 200)
    monkeypatch.setattr(sockets, "SILENCE_MS", 1000)
    there = free_address()
    learner = LearnerSocket(there, Encoder("f32"), ranks=4)
    learner.publish(0, {"w": torch.zeros(3)}, {})
    try:
        with proxy_to(there) as proxy, actor(proxy.address) as end:
            until(lambda _: end.connections, end)
            proxy.hold.set()
            end.hand_over(piece(1))
            until(lambda _: end.cut_off_s > 0, end)
            proxy.cut()
            proxy.hold.clear()
            arrived = until(lambda _: end.connections == 2 and not end.unanswered, learner, end)
            assert numbers(arrived) == [1]
    finally:
        learner.close()


def test_who_was_cut_off_at_the_end_is_told_all_the_same(address, monkeypatch):
    monkeypatch.setattr(actor_socket, "SAY_GOODBYE_S", PATIENCE_S)
    learner = learner_of_one(address)
    with proxy_to(address) as proxy, actor(proxy.address) as end:
        end.hand_over(piece(1))
        until(lambda arrived: arrived, learner, end)
        proxy.cut()
        finishing = threading.Thread(target=learner.finish, args=(PATIENCE_S,))
        finishing.start()
        said = []
        deadline = time.monotonic() + PATIENCE_S
        while not any(message.kind == FINISHED for message in said):
            assert time.monotonic() < deadline
            end.ask(-1)
            said += end.receive(0.05)
        end.close({"rank": 1.0})
        finishing.join(PATIENCE_S)
        assert learner.peers[1].has_ended
        end.close = lambda figures: None  # it is closed already
    learner.close()


@pytest.mark.slow
def test_an_actor_on_a_slow_link_says_goodbye_before_what_it_has_not_sent(address, monkeypatch):
    monkeypatch.setattr(actor_socket, "SAY_GOODBYE_S", PATIENCE_S)
    learner = learner_of_one(address)
    with proxy_to(address, byte_s=400_000) as proxy:
        end = ActorSocket(proxy.address, Identity(1, 1), window=64)
        until(lambda _: end.connections, end)
        for number in range(1, 41):
            end.hand_over(
                piece(number, steps=2000)
            )  # 50 kB each: 5 s in all, and more if CPUs are busy
        until(lambda arrived: arrived, learner, end)
        closing = threading.Thread(target=end.close, args=({"rank": 1.0},))
        closing.start()
        learner.finish(PATIENCE_S)
        closing.join(PATIENCE_S)
        assert learner.peers[1].has_ended
        assert learner.peers[1].number < 40  # otherwise the link was not slow
    learner.close()


def test_who_was_started_again_goes_on_and_what_it_was_before_is_not_heard(address, learner):
    with actor(address) as before:
        before.hand_over(piece(1))
        until(lambda arrived: arrived, learner, before)
        with actor(address, life=1) as again:
            again.hand_over(piece(10))  # number 1 of this life
            assert numbers(until(lambda arrived: arrived, learner, again)) == [10]
            before.hand_over(piece(2))
            until(lambda _: learner.malformed, learner, before)
            again.hand_over(piece(11))
            assert numbers(until(lambda arrived: arrived, learner, again)) == [11]
    assert (learner.peers[1].life, learner.peers[1].lives) == (1, 2)
    assert learner.peers[1].connections == 2


def header(**values):
    usual = {"rank": 1, "life": 1, "number": 1, "shapes": {}, "figures": {}}
    return json.dumps({"kind": "experience"} | usual | values).encode()


HOSTILE = [
    [b"{"],
    [b'{"kind": "ask"}'],
    [header(), b"no arrays"],
    [header(number=2, shapes={"x": [4_000_000_000_000]}), pack_arrays({"x": np.zeros(3)})[1]],
    [header(number=3, shapes=[]), b""],
    [header(number=3, shapes={"x": [-1]}), b""],
    [header(number=4, figures=[]), pack_arrays({"x": np.zeros(3)})[1]],
    [header(number=5, figures={"x": "y"}), pack_arrays({"x": np.zeros(3)})[1]],
    [header(rank=0)],
    [header(rank=7)],
    [header(rank=True)],
    [header(kind="ask", have=math.inf)],
    [header(kind="ask", have="all")],
    [header(kind="hello", connection=-5)],
    [header(kind="bye", figures="hello")],
    [b'{"kind": "ask", "rank": 1e400, "life": 1, "have": 1}'],
]


def test_what_is_no_message_costs_nobody_else_anything(address, learner):
    context = zmq.Context()
    with context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(endpoint(address))
        for frames in HOSTILE:
            stranger.send_multipart(frames)
        until(lambda _: learner.malformed >= len(HOSTILE) - 1, learner)
        with actor(address, rank=2) as end:
            end.hand_over(piece(1))
            assert numbers(until(lambda arrived: arrived, learner, end)) == [1]
    context.term()


def test_arrays_are_what_they_should_be_or_refused():
    spec = {"x": (np.float32, (2, 3)), "b": (bool, (4,))}
    good = {"x": np.zeros((2, 3), np.float32), "b": np.zeros(4, bool)}
    require_arrays(good, spec)
    for name, wrong in (
        ("x", np.zeros((2, 3))),
        ("x", np.zeros((3, 2), np.float32)),
        ("x", np.full((2, 3), np.nan, np.float32)),
        ("b", np.zeros(4, np.uint8)),
    ):
        with pytest.raises(ValueError, match=f"whose {name}"):
            require_arrays(good | {name: wrong}, spec)
    with pytest.raises(ValueError, match="whose b"):
        require_arrays({"x": good["x"]}, spec)


@pytest.mark.parametrize(
    ("versions", "times"),
    [([], []), ([0, -1], [1.0, 2.0]), ([0, 9], [1.0, 2.0]), ([0, 1], [1.0, 1e300]), ([0, 1], [1])],
)
def test_experience_of_no_version_or_at_no_time_is_refused(versions, times):
    arrays = {"version": np.array(versions, np.int64), "made_at_s": np.array(times, float)}
    with pytest.raises(ValueError, match="experience"):
        require_times(Experience(arrays, {}), 5)


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 2))


@pytest.mark.computes
@pytest.mark.parametrize(
    ("encoding", "share", "most_error"),
    [("f32", 1.0, 0.0), ("bf16", 0.5, 2**-8), ("int8", 0.25, None)],
)
def test_weights_arrive_as_exact_and_as_small_as_their_encoding_says(encoding, share, most_error):
    model, other = network(1), network(2)
    encoder = Encoder(encoding)
    encoder.publish(5, model.state_dict())
    encoded = encoder.encode(-1)
    assert encoded.encoding == encoding
    payload = sum(p.nbytes for p in model.parameters())
    assert len(encoded.body) == pytest.approx(share * payload, abs=1000)
    decode(encoded.encoding, encoded.body, other)
    for own, its in zip(model.parameters(), other.parameters(), strict=True):
        step = own.abs().max() / 127 / 2 * 1.001
        bound = step if most_error is None else most_error * own.abs()
        assert ((own - its).abs() <= bound).all()


@pytest.mark.computes
def test_a_delta_is_bf16_without_loss_whatever_version_the_actor_has():
    model, other = network(1), network(2)
    encoder = Encoder("delta")
    rng = np.random.default_rng(0)
    have, kinds = -1, []
    for version in range(0, 60, 5):
        with torch.no_grad():
            flat = model[0].weight.view(-1)
            places = rng.choice(len(flat), 40, replace=False)
            flat[places] += 0.1
            flat[places[0]] = float("nan")
        encoder.publish(version, model.state_dict())
        if version % 15:
            continue  # this actor asks less often
        encoded = encoder.encode(have)
        kinds.append(encoded.encoding)
        decode(encoded.encoding, encoded.body, other)
        have = version
        for own, its in zip(model.parameters(), other.parameters(), strict=True):
            rounded = own.to(torch.bfloat16).float()
            assert torch.equal(rounded.view(torch.int32), its.view(torch.int32))
    assert kinds == ["bf16", "delta", "delta", "delta"]


@pytest.mark.computes
def test_where_most_has_changed_a_delta_is_all_of_it():
    model = network(1)
    encoder = Encoder("delta")
    encoder.publish(0, model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    encoder.publish(5, model.state_dict())
    assert encoder.encode(0).encoding == "bf16"
    assert encoder.encode(0).changed == 1
    assert encoder.encode(-1).changed is None  # nothing to compare with


@pytest.mark.computes
def test_the_share_that_changed_is_that_of_all_answers_also_where_all_numbers_are_sent(address):
    learner = LearnerSocket(address, Encoder("delta"), ranks=2)
    weights, shares = torch.zeros(100), []
    with actor(address) as end:
        for have, version, count in ((-1, 0, 0), (0, 5, 10), (5, 10, 90)):
            weights[:count] += 1
            learner.publish(version, {"w": weights}, {})
            end.ask(have)
            until(lambda _: not end.has_asked, learner, end)
            shares.append(learner.changed)
    learner.close()
    assert shares == [None, 0.1, pytest.approx((0.1 + 0.9) / 2)]


@pytest.mark.computes
def test_weights_of_another_model_are_refused():
    encoder = Encoder("f32")
    encoder.publish(0, nn.Linear(3, 3).state_dict())
    with pytest.raises(ValueError, match="do not fit"):
        decode("f32", encoder.encode(-1).body, network(1))
    with pytest.raises(ValueError, match="do not fit"):
        decode("f32", b"nothing", network(1))


def test_a_distribution_of_more_values_than_are_kept_is_that_of_all():
    found, values = Distribution(), np.random.default_rng(1).exponential(size=5 * MOST_VALUES)
    for part in np.array_split(values, 97):
        found.add(part)
    figures = found.figures()
    assert figures["mean"] == pytest.approx(values.mean(), rel=1e-3)
    assert figures["max"] == pytest.approx(values.max(), rel=1e-3)
    for name, share in (("median", 0.5), ("p95", 0.95)):
        assert figures[name] == pytest.approx(np.quantile(values, share), rel=0.05)
    assert Distribution().figures() == {}


def test_staleness_is_told_in_updates_and_in_seconds():
    staleness = Staleness()
    for version, at in ((0, 100.0), (5, 110.0), (10, 120.0)):
        staleness.publish(version, at)
    arrays = {"version": np.array([0, 5, 10]), "made_at_s": np.array([113.0, 114.0, 121.0])}
    experience = Experience(arrays, {})
    staleness.add(2, experience, 12, 125.0)
    figures = staleness.figures()
    assert figures["staleness_updates"] == {"mean": 7, "median": 7, "p95": 11.5, "max": 12}
    assert figures["staleness_s"]["mean"] == (15 + 5) / 2  # the first version has no age
    assert figures["weights_age_s"]["mean"] == (4 + 1) / 2
    assert staleness.mean_age_s(2) == {"weights_age_s": 2.5}
    assert staleness.mean_age_s(1) == {}
    assert oldest_lag(experience, 12) == 12
