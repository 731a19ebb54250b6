"""Tests of a rank's ledger of collectives, on real ranks, against what the kernel counted on their sockets."""

import json
import os
import socket
import struct
import threading
import time

import pytest
import torch
import torch.distributed as dist

from node.accounting import ledger
from node.accounting.gloo_traffic import all_reduce, exchange
from node.accounting.ledger import Ledger
from node.accounting.link_counters import _is_tcp, tcp_sockets, wait_until_delivered
from node.accounting.metrics import Clock, Metrics
from node.accounting.tcp_state import TcpSockets
from node.dist.comm import Comm
from protocol.collectives import Traffic, read_collective

BYTES_ACKED = 120  # in struct tcp_info of linux/tcp.h
FLOATS = 300_000


def comm_of(ranks):
    return Comm(ranks, Clock(time.perf_counter()))


def do(comm, kind, floats=FLOATS):
    """Run one collective; with exchange, each rank of a ring sends to the next one."""
    flat, n = torch.ones(floats, dtype=torch.float32), comm.world_size
    if kind == "all_reduce":
        comm.all_reduce(flat)
    elif kind == "all_gather":
        comm.all_gather(flat)
    elif kind == "all_to_all":
        comm.start_all_to_all(torch.ones(n, floats, dtype=torch.uint8))()
    else:
        peers = (comm.rank + 1) % n, (comm.rank - 1) % n
        comm.exchange({peers[0]: flat}, {peers[1]: torch.empty_like(flat)})


def acknowledged():
    """Return the bytes acknowledged by each peer: (own port, peer's port) -> bytes."""
    counts = {}
    for fd in tcp_sockets():
        one = socket.socket(fileno=fd)
        try:
            ports = one.getsockname()[1], one.getpeername()[1]
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            counts[ports] = struct.unpack_from("Q", info, BYTES_ACKED)[0]
        except OSError:
            pass  # a listening socket
        finally:
            one.detach()
    return counts


def watched(ranks, kind):
    """Run a collective; return the kernel's counts before and after, and the ledger's line."""
    comm = comm_of(ranks)
    do(comm, kind, 8)  # to connect all ranks first
    dist.barrier()
    wait_until_delivered(5)
    before = acknowledged()
    do(comm, kind)
    wait_until_delivered(5)
    after = acknowledged()
    dist.barrier()
    return after, {p: after[p] - before.get(p, 0) for p in after}, comm.ledger.take_lines()[-1]


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "exchange"])
def test_gloo_sends_what_the_books_say_to_whom_they_say(pools, kind):
    seen = pools(4).run(watched, kind)
    owner = {ports: rank for rank, (counts, _, _) in enumerate(seen) for ports in counts}
    for _, sent, line in seen:
        to = dict.fromkeys(range(4), 0)
        for (here, there), count in sent.items():
            if (there, here) in owner:
                to[owner[there, here]] += count
        for peer, count in to.items():
            payload = line["to"].get(peer, 0)
            # gloo's own headers: 96 bytes per message, and 48 back
            assert count == pytest.approx(payload, rel=0.001, abs=100 * 12 * 1.5), (peer, kind)
        assert line["kind"] == kind and sum(line["to"].values()) == line["sent_bytes"]


def paused(ranks, nap_s):
    """Return the ledger of an all-reduce before and after a pause, and of a tiny one."""
    comm = comm_of(ranks)
    do(comm, "all_reduce")
    wait_until_delivered(5)
    time.sleep(nap_s)
    do(comm, "all_reduce")
    do(comm, "all_reduce", 8)
    return comm.ledger.take_lines()


def test_the_books_tell_what_tcp_was_ready_for(pools):
    """On loopback all ranks have one address; nothing is lost, and the first window has at least ten segments."""
    for _, after_a_pause, tiny in pools(3).run(paused, 0.5):
        (state,) = after_a_pause["tcp"].values()
        assert list(after_a_pause["tcp"]) == ["127.0.0.1"]
        assert state["window_bytes"] >= 10 * 1448
        assert 0.4 <= state["idle_s"] <= 5
        assert 0.2 <= state["rto_s"] <= 5
        assert "tcp" not in tiny


def exchanged(ranks):
    """Return what a rank received, and how many messages torch got per batch."""
    comm, batches = comm_of(ranks), []
    begin = dist.batch_isend_irecv
    dist.batch_isend_irecv = lambda parts: batches.append(len(parts)) or begin(parts)
    try:
        arrived = torch.empty(2)
        comm.exchange({1 - comm.rank: torch.full((2,), comm.rank + 1.0)}, {1 - comm.rank: arrived})
    finally:
        dist.batch_isend_irecv = begin
    return arrived.tolist(), batches


def test_what_is_exchanged_is_begun_all_at_once(pools):
    """NCCL hangs if every rank starts a receive before its send; gloo does not."""
    assert pools(2).run(exchanged) == [([2.0, 2.0], [2]), ([1.0, 1.0], [2])]


def test_alone_rows_arrive_as_they_were_sent(pools):
    assert pools(1).run(sent_to_oneself) == [([[1, 2, 3]], True)]


def sent_to_oneself(ranks):
    """Return what arrived, and whether it is a separate tensor: uninitialised memory often has other numbers."""
    rows = torch.tensor([[1, 2, 3]], dtype=torch.uint8)
    arrived = comm_of(ranks).start_all_to_all(rows)()
    return arrived.tolist(), arrived.data_ptr() != rows.data_ptr()


def slow_rank(ranks, nap_s):
    """Run an all-reduce to which rank 1 comes late."""
    comm = comm_of(ranks)
    dist.barrier()
    time.sleep(nap_s if ranks.rank == 1 else 0)
    comm.ledger.step = 7
    comm.all_reduce(torch.ones(1000, dtype=torch.float32), purpose="control")
    return comm.ledger.take_lines(), comm.ledger.sums()


def test_the_books_tell_waiting_for_a_slow_rank(pools):
    """The ranks share a clock, so it is known when the last rank started and how long the others waited for it."""
    seen = pools(3).run(slow_rank, 0.8)
    lines = [lines[0] for lines, _ in seen]
    latest = max(line["time"] for line in lines)
    assert latest == lines[1]["time"]
    for rank in (0, 2):
        line = lines[rank]
        assert 0.3 < latest - line["time"] < line["done_s"]
        assert line["waited_s"] == pytest.approx(line["done_s"], rel=0.2)
        assert line["time"] + line["done_s"] >= latest
    assert lines[1]["waited_s"] < 0.5 * min(lines[rank]["waited_s"] for rank in (0, 2))
    assert {(line["step"], line["purpose"], line["bytes"]) for line in lines} == {
        (7, "control", 4000)
    }
    # The last rank's collective may finish before it waits: with one CPU, gloo's thread may run first.
    assert not any(lines[rank]["hidden"] for rank in (0, 2))


def overlapped(ranks):
    comm = comm_of(ranks)
    wait = comm.start_all_reduce(torch.ones(1000))
    time.sleep(0.3)
    wait()
    return comm.ledger.take_lines()


def test_what_was_done_before_anybody_waited_is_marked(pools):
    for (line,) in pools(2).run(overlapped):
        assert line["hidden"]
        assert line["done_s"] >= 0.3 and line["waited_s"] < 0.5 * line["done_s"]


def one_way(ranks):
    """Rank 0 sends, rank 1 receives, rank 2 does nothing."""
    comm = comm_of(ranks)
    flat = torch.ones(10, dtype=torch.float32)  # other tests leave another default dtype
    comm.exchange({1: flat} if ranks.rank == 0 else {}, {0: flat} if ranks.rank == 1 else {})
    return comm.ledger.take_lines()


def test_an_exchange_says_whom_it_waits_for(pools):
    first, second, third = pools(3).run(one_way)
    assert (first[0]["to"], first[0]["sources"]) == ({1: 40}, ())
    assert (second[0]["to"], second[0]["sources"]) == ({}, (0,))
    assert third == []


def test_sums_stay_exact_where_lines_end(monkeypatch, tmp_path):
    monkeypatch.setattr(ledger, "MAX_LINES", 3)
    books, metrics = Ledger(), Metrics(tmp_path, 0, 1)
    for number in range(5):
        flow = exchange({1: 100}, {1: 100}) if number % 2 else all_reduce(0, 2, 100, 4)
        books.end(books.begin(flow, "train"), time.perf_counter(), hidden=False)
        metrics.write_collectives(books.take_lines())
    written = (tmp_path / "collectives.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in written] == [
        "all_reduce",
        "exchange",
        "all_reduce",
    ]
    sums = {one.kind: one for one in books.sums()}
    assert {kind: one.count for kind, one in sums.items()} == {"all_reduce": 3, "exchange": 2}
    assert sums["exchange"].to == {1: Traffic(200, 2)}
    assert sums["all_reduce"].to[1].bytes == 300


def test_collectives_that_vary_in_size_are_one_sum():
    books = Ledger()
    for number in range(200):
        books.sizes_vary = number > 0
        flow = all_reduce(0, 2, 1000 + 4 * number, 4)
        books.end(books.begin(flow, "train"), time.perf_counter(), hidden=False)
    one, others = books.sums()
    assert (one.bytes, one.count, one.sizes_vary) == (1000, 1, False)
    assert (others.bytes, others.count, others.sizes_vary) == (1400, 199, True)
    assert others.to[1].bytes == sum(1000 + 4 * number for number in range(1, 200))
    lines = [read_collective(line) for line in books.take_lines()]
    assert [line.sizes_vary for line in lines[:2]] == [False, True]
    assert [line.bytes for line in lines[:2]] == [1000, 1004]


@pytest.mark.slow
def test_what_sparta_sends_in_its_steps_is_one_sum(run):
    ranks = run(2, "--strategy", "sparta", "--steps", "6", "--batch-size", "8")
    sums = [one for one in ranks.end["collectives"] if one["purpose"] == "train"]
    assert [(one["count"], one["sizes_vary"]) for one in sums] == [(6, True), (1, False)]


@pytest.mark.parametrize(
    ("size", "messages"),
    [
        (4_799_528, 8),  # six segments, at most two per rank
        (6_400_000, 12),  # nine segments of at most 1 MB
        (4, 1),  # all but one are empty
    ],
)
def test_segments_are_gloos(size, messages):
    assert all_reduce(0, 3, size, 4).messages == messages


def test_delivered_is_what_the_peer_has_taken():
    """Bytes that the reader has not read stay in flight once its buffer is full."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        out = socket.create_connection(server.getsockname())
        into, _ = server.accept()
        sending = threading.Thread(target=out.sendall, args=(bytes(8_000_000),), daemon=True)
        sending.start()
        time.sleep(0.1)
        began = time.monotonic()
        wait_until_delivered(0.2)
        assert time.monotonic() - began >= 0.2
        reader = threading.Thread(target=lambda: [into.recv(1 << 20) for _ in range(400)])
        reader.daemon = True
        reader.start()
        sending.join(10)
        wait_until_delivered(10)
        assert time.monotonic() - began < 8
        out.close()
        reader.join(10)
        into.close()


def test_a_connection_is_known_by_its_peers_address():
    """Also one of an IPv6 socket: torch's store listens on one."""
    address = "127.0.0.1"
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        out = socket.create_connection((address, server.getsockname()[1]))
        into, _ = server.accept()
        states = TcpSockets().read()
        assert [states[one.fileno()].address for one in (out, into)] == [address, address]
        out.close()
        into.close()


def test_sockets_are_searched_for_once(monkeypatch):
    searches = []

    def search():
        searches.append(1)
        return tcp_sockets()

    monkeypatch.setattr("node.accounting.tcp_state.tcp_sockets", search)
    with socket.create_server(("127.0.0.1", 0)) as server:  # listening sockets are not connected
        out = socket.create_connection(server.getsockname())
        into, _ = server.accept()
        sockets = TcpSockets()
        assert len({frozenset(sockets.read()) for _ in range(9)}) == 1 == len(searches)
        out.close()
        assert (into.fileno() in sockets.read(), len(searches)) == (True, 1)
        assert (into.fileno() in sockets.read(), len(searches)) == (True, 2)
        into.close()


def test_a_socket_that_gloo_closes_meanwhile_is_no_error(monkeypatch):
    """A peer that finishes first closes its end, and gloo's thread then closes ours, possibly while we look at it."""
    look = os.fstat

    def look_too_late(fd):
        found = look(fd)
        os.close(fd)
        return found

    fd = socket.socket().detach()
    assert _is_tcp(fd)
    monkeypatch.setattr("node.accounting.link_counters.os.fstat", look_too_late)
    assert not _is_tcp(fd)
