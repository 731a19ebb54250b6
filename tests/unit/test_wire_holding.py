"""Held packets: in order, on time, spread and lost as asked, and the same again with the same seed."""

import statistics

from node.wire.holding import Behaviour, HoldingLine
from node.wire.nfnetlink import ACCEPT, DROP, Verdict, verdict_message

QUIET = Behaviour(delay_s=0.05, jitter_s=0.0, loss=0.0, seed=1, max_packets=1000)


def send(line, count, interval_s):
    """Let packets 0, 1, 2, … arrive at even intervals and return when each may go, and its fate."""
    for packet in range(count):
        line.admit(packet, packet * interval_s)
    left = []
    while (due := line.next_due()) < float("inf"):
        for verdict in line.release(due):
            left += [(packet, due, verdict.what) for packet in range(len(left), verdict.up_to + 1)]
    return left


def test_a_packet_goes_exactly_after_the_delay():
    line = HoldingLine(QUIET)
    assert line.admit(7, 1.0)
    assert not line.admit(8, 1.01)
    assert line.next_due() == 1.05
    assert line.release(1.04) == []
    assert line.release(1.05) == [Verdict(ACCEPT, 7)]
    assert line.release(2.0) == [Verdict(ACCEPT, 8)]
    assert line.next_due() == float("inf")


def test_all_that_is_due_goes_with_one_verdict():
    line = HoldingLine(QUIET)
    for packet in range(100):
        line.admit(packet, 0.0)
    assert line.release(1.0) == [Verdict(ACCEPT, 99)]


def test_jitter_has_the_spread_that_was_asked_for():
    left = send(HoldingLine(QUIET._replace(jitter_s=0.01)), 20_000, interval_s=0.1)
    delays = [due - packet * 0.1 for packet, due, _ in left]
    assert abs(statistics.mean(delays) - 0.05) < 0.0005
    assert abs(statistics.stdev(delays) - 0.01) < 0.0003


def test_order_is_kept_under_jitter_however_dense_the_packets():
    left = send(HoldingLine(QUIET._replace(jitter_s=0.02)), 5_000, interval_s=0.0001)
    assert [packet for packet, _, _ in left] == list(range(5_000))
    assert all(earlier[1] <= later[1] for earlier, later in zip(left, left[1:], strict=False))


def test_a_shorter_delay_does_not_let_packets_overtake():
    line = HoldingLine(QUIET)
    line.admit(1, 0.0)
    line.change(QUIET._replace(delay_s=0.0))
    line.admit(2, 0.01)
    assert line.release(0.04) == []
    assert line.release(0.05) == [Verdict(ACCEPT, 2)]


def test_loss_is_within_its_binomial_interval():
    left = send(HoldingLine(QUIET._replace(loss=0.01)), 50_000, interval_s=0.001)
    lost = sum(what == DROP for _, _, what in left)
    assert abs(lost - 500) < 2.58 * (50_000 * 0.01 * 0.99) ** 0.5  # 99 %


def test_a_lost_packet_takes_no_other_with_it():
    line = HoldingLine(QUIET._replace(loss=1.0))
    line.admit(1, 0.0)
    line.change(QUIET)
    line.admit(2, 0.0)
    line.admit(3, 0.0)
    assert line.release(1.0) == [Verdict(DROP, 1), Verdict(ACCEPT, 3)]


def test_the_same_seed_gives_the_same_times_and_losses():
    noisy = QUIET._replace(jitter_s=0.01, loss=0.1)
    again = [send(HoldingLine(noisy), 1_000, 0.01) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != send(HoldingLine(noisy._replace(seed=2)), 1_000, 0.01)


def test_a_change_without_a_new_seed_goes_on_with_the_same_chances():
    noisy = QUIET._replace(loss=0.5)
    line, changed = HoldingLine(noisy), HoldingLine(noisy)
    send(line, 10, 0.01)
    send(changed, 10, 0.01)
    changed.change(noisy._replace(delay_s=0.07))
    fates = [[what for _, _, what in send(each, 50, 0.01)] for each in (line, changed)]
    assert fates[0] == fates[1]


def test_a_verdict_on_the_wire():
    message = verdict_message(0x6701, Verdict(DROP, 5))
    assert (
        message[:8].hex() == "2000000003030100"
    )  # 32 bytes, batch verdict of nfnetlink_queue, request
    assert message[16:].hex() == "00006701" + "0c000200" + "00000000" + "00000005"
