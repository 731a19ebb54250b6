"""TCP's windows: what they are after a pause, and what may leave when, against a simulation packet by packet."""

import math
import random

import pytest

from cluster.accounting.tcp_timing import (
    FIRST_WINDOW_BYTES,
    MSS_BYTES,
    UNLIMITED,
    Sender,
    SocketState,
    Window,
    transfer_s,
    window_after,
)


def test_after_a_pause_tcp_begins_slowly():
    """The window starts at 14,480 bytes and doubles per round trip until the link is full or nothing is left."""
    assert window_after(0.15, 0.1) == window_after(0.9, 1.0) == UNLIMITED
    small = window_after(0.25, 0.1)
    assert small == Window(FIRST_WINDOW_BYTES) == window_after(2, 1)
    assert transfer_s(1e6, 0.1, 1e6) == 1.0
    assert transfer_s(14_000, 0.1, 1e6, small) == 0.014
    # 14,480 + 28,960 + 57,920 in three round trips; a link of 1 MB/s carries at most 100,000 bytes in one.
    assert transfer_s(1e6, 0.1, 1e6, small) == pytest.approx(0.3 + (1e6 - 101_360) / 1e6)
    assert transfer_s(50_000, 1.0, 1e9, small) == pytest.approx(2.0, abs=1e-3)


def test_beyond_ssthresh_the_window_stays_as_it_is():
    """20,000, 40,000, then 50,000 bytes per round trip: enough for a link of 0.5 MB/s, half of what 1 MB/s needs."""
    window = Window(20_000, 50_000)
    assert [window.grown(n).size_bytes for n in (0, 20_000, 90_000)] == [20_000, 40_000, 50_000]
    assert Window(60_000, 50_000).grown(1e6).size_bytes == 60_000
    # In the last of 19 round trips there are 40,000 bytes left, which leave at once.
    assert transfer_s(1e6, 0.1, 1e6, window) == pytest.approx(0.2 + 18 * 0.1 + 0.04)
    assert transfer_s(1e6, 0.1, 5e5, window) == pytest.approx(0.2 + 940_000 / 5e5)


@pytest.mark.parametrize(
    ("idle_s", "slow_start", "size", "ssthresh"),
    [
        (0.3, True, 160_000, math.inf),  # not longer than a timeout
        (0.31, True, 80_000, math.inf),
        (0.65, True, 40_000, math.inf),
        (60.0, True, FIRST_WINDOW_BYTES, math.inf),
        (60.0, False, 160_000, math.inf),
    ],
)
def test_each_timeout_without_anything_sent_halves_the_window(idle_s, slow_start, size, ssthresh):
    """As in tcp_cwnd_restart of net/ipv4/tcp_output.c."""
    told = SocketState(Window(160_000), idle_s, rto_s=0.3, sent_again=0)
    assert told.window_now(slow_start=slow_start) == Window(size, ssthresh)


def test_after_a_loss_and_a_pause_slow_start_ends_at_three_quarters_of_what_was():
    told = SocketState(Window(160_000, 90_000), 1.0, rto_s=0.3, sent_again=0)
    assert told.window_now(slow_start=True) == Window(20_000, 120_000)
    tiny = SocketState(Window(5_000, 3_000), 9.0, rto_s=0.3, sent_again=0)
    assert tiny.window_now(slow_start=True) == Window(5_000, 3_000)


def packet_by_packet(window, rtt_s, byte_s, messages):
    """Return when the last packet of each message leaves; each packet is acknowledged one round trip later."""
    packet_s = MSS_BYTES / byte_s
    acknowledgements, in_flight, now, left_at = [], 0, 0.0, []
    for packets, at in messages:
        now = max(now, at)
        for _ in range(packets):
            while acknowledgements and acknowledgements[0] <= now or in_flight >= window.size_bytes:
                now = max(now, acknowledgements.pop(0))
                in_flight -= MSS_BYTES
                window = window.grown(MSS_BYTES)
            acknowledgements.append(now + rtt_s)
            in_flight += MSS_BYTES
            now += packet_s
        left_at.append(now)
    return left_at


@pytest.mark.parametrize("seed", range(40))
def test_messages_leave_as_in_a_simulation_of_every_packet(seed):
    draw = random.Random(seed)
    packet_s = draw.uniform(1e-5, 1e-3)
    rtt_s = draw.uniform(0.01, 0.3)
    full = max(12, rtt_s / packet_s)
    ssthresh = draw.choice([math.inf, MSS_BYTES * round(draw.uniform(0.1, 1.5) * full)])
    window = Window(MSS_BYTES * draw.randint(5, 40), ssthresh)
    byte_s = MSS_BYTES / packet_s
    messages, at = [], 0.0
    for _ in range(draw.randint(1, 12)):
        messages.append((draw.randint(1, round(full)), at))
        at += draw.choice([0.0, 0.0, draw.uniform(0, 2 * rtt_s)])
    sender = Sender(window, rtt_s, byte_s, free_at=0.0)
    found = [sender.send(packets * MSS_BYTES, at) for packets, at in messages]
    slow = packet_by_packet(window, rtt_s, byte_s, messages)
    longest_s = slow[-1] - sum(packets for packets, _ in messages) * packet_s
    for own, reference in zip(found, slow, strict=True):
        assert own == pytest.approx(reference, abs=3 * packet_s + 0.03 * max(longest_s, rtt_s)), (
            seed
        )


def test_round_trips_that_are_all_alike_are_skipped_without_a_difference():
    """One message as large as a hundred windows, or a hundred messages."""
    window, rtt_s, byte_s = Window(50_000, 20_000), 0.1, 1e6
    whole = Sender(window, rtt_s, byte_s, 0.0).send(5e6, 0.0)
    sender = Sender(window, rtt_s, byte_s, 0.0)
    assert [sender.send(50_000, 0.0) for _ in range(100)][-1] == pytest.approx(whole)
    assert whole == pytest.approx(99 * rtt_s + 0.05)


@pytest.fixture
def turns(monkeypatch):
    """The turns that senders have taken, one entry each; no test here takes a million."""
    taken, acknowledge = [], Sender._acknowledge

    def counted(sender):
        taken.append(1)
        assert len(taken) < 1_000_000
        acknowledge(sender)

    monkeypatch.setattr(Sender, "_acknowledge", counted)
    return taken


@pytest.mark.parametrize("free_at", [0.0, 1.7e9, 1e11])
def test_round_trips_too_short_to_be_told_apart_take_no_turn_each(turns, free_at):
    """A window of a byte for 1 GB: a thousand million round trips of 0.1 us, which add nothing to a time of 1e11 s."""
    sender = Sender(Window(1.0, 1.0), 1e-7, 1e9, free_at)
    assert sender.send(1e9, free_at) - free_at == pytest.approx(100, abs=0.01)
    assert len(turns) < 300


def test_a_window_cut_into_many_pieces_takes_a_bounded_number_of_turns(turns):
    """Each message cuts one more piece off a window: the 4,000th would take some eight hundred turns."""
    window, rtt_s, messages = Window(1e6, 2e4), 0.1, 4000
    sender = Sender(window, rtt_s, 1e8, 0.0)
    ends = [sender.send(1_000_003, 0.0) for _ in range(messages)]
    assert ends[-1] == pytest.approx(messages * rtt_s, rel=0.02)
    assert len(turns) < 150 * messages
