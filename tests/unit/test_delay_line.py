"""Held packets: order, timing, jitter and loss as requested, and reproducible with the same seed."""

import statistics
import struct

import pytest

from node.wire.nfqueue.delay_line import (
    AT_ONCE,
    FIRST,
    HELD,
    Behaviour,
    DelayLine,
    Downlink,
    flip_bit,
)
from node.wire.nfqueue.nfnetlink import (
    ACCEPT,
    DROP,
    META,
    WHOLE,
    PacketVerdict,
    read_announcement,
    verdict_message,
)

QUIET = Behaviour(delay_s=0.05)


def hold(behaviour, downlink=None):
    return DelayLine(behaviour, downlink or Downlink(float("inf"), float("inf")))


def send(line, count, interval_s):
    """Admit packets 0, 1, 2, … at even intervals; return each with the time of its release and its verdict."""
    for packet in range(count):
        line.admit(packet, packet * interval_s)
    left = []
    while (due := line.next_due()) < float("inf"):
        for verdict in line.take_due(due):
            left += [(packet, due, verdict.what) for packet in range(len(left), verdict.up_to + 1)]
    return left


def test_a_packet_goes_exactly_after_the_delay():
    line = hold(QUIET)
    assert line.admit(7, 1.0) == FIRST
    assert line.admit(8, 1.01) == HELD
    assert line.next_due() == 1.05
    assert line.take_due(1.04) == []
    assert line.take_due(1.05) == [PacketVerdict(ACCEPT, 7)]
    assert line.take_due(2.0) == [PacketVerdict(ACCEPT, 8)]
    assert line.next_due() == float("inf")


def test_what_is_dropped_by_chance_is_counted_and_what_finds_no_room_is_not():
    lossy = hold(Behaviour(delay_s=0.05, loss=0.25))
    dropped = sum(what == DROP for _, _, what in send(lossy, 400, 0.001))
    assert (lossy.taken, lossy.lost) == (400, dropped)
    assert 60 < dropped < 140
    narrow = hold(QUIET._replace(limited=True), Downlink(bytes_per_s=1000.0, longest_s=0.1))
    for packet in range(100):
        narrow.admit(packet, 0.0, size=86)
    assert (narrow.taken, narrow.lost) == (100, 0)


def test_all_that_is_due_goes_with_one_verdict():
    line = hold(QUIET)
    for packet in range(100):
        line.admit(packet, 0.0)
    assert line.take_due(1.0) == [PacketVerdict(ACCEPT, 99)]


def test_jitter_has_the_spread_that_was_asked_for():
    left = send(hold(QUIET._replace(jitter_s=0.01)), 20_000, interval_s=0.1)
    delays = [due - packet * 0.1 for packet, due, _ in left]
    assert abs(statistics.mean(delays) - 0.05) < 0.0005
    assert abs(statistics.stdev(delays) - 0.01) < 0.0003


def test_order_is_kept_under_jitter_however_dense_the_packets():
    left = send(hold(QUIET._replace(jitter_s=0.02)), 5_000, interval_s=0.0001)
    assert [packet for packet, _, _ in left] == list(range(5_000))
    assert all(earlier[1] <= later[1] for earlier, later in zip(left, left[1:], strict=False))


def test_a_shorter_delay_does_not_let_packets_overtake():
    line = hold(QUIET)
    line.admit(1, 0.0)
    line.change(QUIET._replace(delay_s=0.0))
    line.admit(2, 0.01)
    assert line.take_due(0.04) == []
    assert line.take_due(0.05) == [PacketVerdict(ACCEPT, 2)]


def test_loss_is_within_its_binomial_interval():
    left = send(hold(QUIET._replace(loss=0.01)), 50_000, interval_s=0.001)
    lost = sum(what == DROP for _, _, what in left)
    assert abs(lost - 500) < 2.58 * (50_000 * 0.01 * 0.99) ** 0.5  # 99 %


def test_a_lost_packet_takes_no_other_with_it():
    line = hold(QUIET._replace(loss=1.0))
    line.admit(1, 0.0)
    line.change(QUIET)
    line.admit(2, 0.0)
    line.admit(3, 0.0)
    assert line.take_due(1.0) == [PacketVerdict(DROP, 1), PacketVerdict(ACCEPT, 3)]


def test_the_same_seed_gives_the_same_times_and_losses():
    noisy = QUIET._replace(jitter_s=0.01, loss=0.1)
    again = [send(hold(noisy), 1_000, 0.01) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != send(hold(noisy._replace(seed=2)), 1_000, 0.01)


def test_a_change_without_a_new_seed_goes_on_with_the_same_chances():
    noisy = QUIET._replace(loss=0.5)
    line, changed = hold(noisy), hold(noisy)
    send(line, 10, 0.01)
    send(changed, 10, 0.01)
    changed.change(noisy._replace(delay_s=0.07))
    fates = [[what for _, _, what in send(each, 50, 0.01)] for each in (line, changed)]
    assert fates[0] == fates[1]


def test_uniform_jitter_has_the_same_spread_and_an_end():
    uniform = QUIET._replace(jitter_s=0.01, distribution="uniform")
    left = send(hold(uniform), 20_000, interval_s=0.1)
    delays = [due - packet * 0.1 for packet, due, _ in left]
    assert abs(statistics.stdev(delays) - 0.01) < 0.0003
    assert max(delays) - 0.05 < 0.01 * 3**0.5 + 1e-9


def test_more_jitter_does_not_move_the_losses():
    fates = [
        [what for _, _, what in send(hold(QUIET._replace(loss=0.1, jitter_s=j)), 500, 0.1)]
        for j in (0.0, 0.01)
    ]
    assert fates[0] == fates[1]


def test_losses_come_in_bursts_of_the_length_that_was_asked_for():
    begins, ends = 0.1 * 0.25 / 0.9, 0.25
    left = send(hold(QUIET._replace(bursts=(begins, ends))), 100_000, 0.001)
    lost = [what == DROP for _, _, what in left]
    bursts = sum(now and not before for before, now in zip([False, *lost], lost, strict=False))
    assert abs(sum(lost) / 100_000 - 0.1) < 0.01
    assert abs(sum(lost) / bursts - 4) < 0.25


def test_a_packet_that_overtakes_is_not_held():
    line = hold(QUIET._replace(reorder=0.2))
    places = [line.admit(packet, 0.0) for packet in range(10_000)]
    assert abs(places.count(AT_ONCE) - 2_000) < 2.58 * 40
    assert places.count(FIRST) == 1


IPV4_PACKET = bytes([0x45, *bytes(19), *b"payload"])


def test_some_packets_are_doubled_and_some_damaged():
    line = hold(QUIET._replace(duplicate=0.3, corrupt=0.1))
    for packet in range(10_000):
        line.admit(packet, 0.0, len(IPV4_PACKET), IPV4_PACKET)
    verdicts = line.take_due(1.0)
    assert abs(sum(bool(v.copy) for v in verdicts) - 3_000) < 2.58 * 46
    changed = [v.content for v in verdicts if v.content]
    assert abs(len(changed) - 1_000) < 2.58 * 30
    assert verdicts[-1].up_to == 9_999
    for content in changed:  # one bit, outside the header, which is not checked again
        bits = int.from_bytes(content, "big") ^ int.from_bytes(IPV4_PACKET, "big")
        assert bits.bit_count() == 1 and content[:20] == IPV4_PACKET[:20]
    assert flip_bit(IPV4_PACKET[:20], 0.5) == IPV4_PACKET[:20]


@pytest.mark.parametrize("content", [b"", b"\x45", IPV4_PACKET[:-1]], ids=len)
@pytest.mark.parametrize("harm", [{"corrupt": 1.0}, {"duplicate": 1.0}], ids=str)
def test_a_packet_that_was_announced_before_all_of_it_was_asked_for_is_not_harmed(content, harm):
    """The kernel announced it with its front or its size alone; there is nothing that could be sent in its place."""
    line = hold(QUIET._replace(reorder=0.1, copied=META))
    line.change(QUIET._replace(copied=WHOLE, **harm))
    for packet in range(3):
        line.admit(packet, 0.0, len(IPV4_PACKET), content)
    assert line.take_due(1.0) == [PacketVerdict(ACCEPT, 2)]
    line.admit(3, 2.0, len(IPV4_PACKET), IPV4_PACKET)
    (verdict,) = line.take_due(3.0)
    assert verdict.content or verdict.copy == IPV4_PACKET


def test_a_downlink_has_a_rate_and_a_queue_with_an_end():
    downlink = Downlink(bytes_per_s=1514e3, longest_s=0.0025)
    times = [downlink.pass_on(10.0, 1500) for _ in range(5)]
    assert times[:3] == pytest.approx([10.001, 10.002, 10.003])
    assert times[3:] == [None, None]  # they would wait too long
    assert downlink.pass_on(10.0021, 1500) == pytest.approx(10.004)
    assert downlink.pass_on(20.0, 1500) == pytest.approx(20.001)


def test_what_is_lost_takes_nothing_of_the_downlink():
    downlink = Downlink(bytes_per_s=1514e3, longest_s=1.0)
    lost = hold(QUIET._replace(loss=1.0, limited=True), downlink)
    kept = hold(QUIET._replace(limited=True), downlink)
    for packet in range(10):
        lost.admit(packet, 1.0, size=1500)
    kept.admit(1, 1.0, size=1500)
    kept.admit(2, 1.0, size=1500)
    assert lost.next_due() == pytest.approx(1.05)
    assert kept.next_due() == pytest.approx(1.051)
    assert kept.take_due(1.0515) == [PacketVerdict(ACCEPT, 1)]


def test_what_is_known_of_a_packet_besides_its_number():
    attributes = [
        struct.pack("=HH", 20, 4) + struct.pack(">QQ", 7, 250_000),
        struct.pack("=HH", 8, 13) + struct.pack(">I", 1500),
        struct.pack("=HH", 5, 10) + b"E\0\0\0",
    ]
    assert read_announcement(memoryview(bytes(20) + b"".join(attributes))) == (7.25, 1500, b"E")
    assert read_announcement(memoryview(bytes(20) + attributes[2])) == (None, 1, b"E")


def test_a_verdict_on_one_packet_with_other_content():
    message = verdict_message(0x6701, PacketVerdict(ACCEPT, 5, b"abcde"))
    assert message[4:6].hex() == "0103"  # single verdict
    assert message[
        20:
    ].hex() == "0c000200" + "00000001" + "00000005" + "09000a00" + "6162636465" + ("000000")


def test_a_verdict_on_the_wire():
    message = verdict_message(0x6701, PacketVerdict(DROP, 5))
    assert (
        message[:8].hex() == "2000000003030100"
    )  # 32 bytes, batch verdict of nfnetlink_queue, request
    assert message[16:].hex() == "00006701" + "0c000200" + "00000000" + "00000005"
