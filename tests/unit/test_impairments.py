"""Impairments compared with the request: correct ones pass, wrong ones are named."""

import random
from dataclasses import replace

import pytest

from cluster.contract.impairments import judge_impairments
from cluster.contract.measured import DropCount, Measured
from protocol.gilbert import loss_burst_chances
from protocol.link import Link

PLAIN = {"src": "node1", "dst": "node2", "rate_mbyte_s": 1.0, "delay_ms": 40.0}


def link(**values):
    return Link(**PLAIN | {"jitter_ms": 0.0, "loss_pct": 0.0, "buffer_ms": 80.0} | values)


def seen(sent=800, lost=0, gaps=None, twice=0, reordered=0):
    gaps = lost if gaps is None else gaps
    return Measured(80.0, 0.0, 60, sent, sent - lost, reordered, twice=twice, gaps=gaps)


def broken(asked, measured):
    return [name for name, holds in judge_impairments(asked, measured).items() if not holds]


@pytest.mark.parametrize(
    ("asked", "measured", "names"),
    [
        (link(), seen(), []),
        (link(), seen(lost=1), ["loss"]),
        (link(), seen(twice=1, reordered=1), ["doubles", "reordering"]),
        (link(duplicate_pct=5.0), seen(twice=40), []),
        (link(duplicate_pct=5.0), seen(twice=80), ["doubles"]),
        (link(duplicate_pct=5.0), seen(), ["doubles"]),
        (link(reorder_pct=2.0), seen(reordered=16), []),
        (link(reorder_pct=2.0), seen(reordered=60), ["reordering"]),
        (link(reorder_pct=2.0), seen(), ["reordering"]),
        (link(reorder_pct=2.0, delay_ms=5.0), seen(), []),
        (link(corrupt_pct=3.0), seen(lost=24), []),
        (link(corrupt_pct=3.0), seen(lost=2), ["loss"]),
        (link(loss_pct=10.0, loss_burst=5.0), seen(lost=80, gaps=16), []),
        (
            link(loss_pct=10.0, loss_burst=5.0),
            seen(lost=130, gaps=26),
            [],
        ),  # bursts widen the interval
        (link(loss_pct=10.0), seen(lost=130), ["loss"]),
        (link(loss_pct=10.0, loss_burst=5.0), seen(lost=80, gaps=72), ["loss_burst"]),
        (link(loss_pct=10.0, loss_burst=5.0), seen(lost=300, gaps=60), ["loss"]),
    ],
)
def test_each_flaw_is_judged_by_itself(asked, measured, names):
    assert broken(asked, measured) == names


def test_netem_damages_ethernet_headers_too_which_loses_nothing():
    """4000 pings, 5 % of them corrupted: 3.8 % lost is right for netem, and too few for nfqueue."""
    damaged = {wire: link(corrupt_pct=5.0, wire=wire) for wire in ("netem", "nfqueue")}
    assert broken(damaged["netem"], seen(sent=4000, lost=150)) == []
    assert broken(damaged["netem"], seen(sent=4000, lost=200)) == []
    assert broken(damaged["netem"], seen(sent=4000, lost=90)) == ["loss"]
    assert broken(damaged["nfqueue"], seen(sent=4000, lost=150)) == ["loss"]


def drop_count(lost=0, packets=800, all_packets=None, all_lost=None):
    """The wire's counts, during the pings that measure loss and during the whole look."""
    all_packets = packets if all_packets is None else all_packets
    return DropCount(packets, lost, all_packets, lost if all_lost is None else all_lost)


@pytest.mark.parametrize(
    ("asked", "lost", "counted", "names"),
    [
        (link(loss_pct=5.0), 40, drop_count(40), []),
        (link(loss_pct=5.0), 40, drop_count(41, packets=803), []),  # one of three others
        (link(loss_pct=5.0), 41, drop_count(40), ["unaccounted"]),  # one lost, not counted
        (link(loss_pct=5.0), 40, drop_count(41), ["unaccounted"]),  # one counted, not lost
        (link(loss_pct=5.0), 40, drop_count(44, packets=803), ["unaccounted"]),
        # At 0.1 %, 800 pings may lose one or none, but 20,000 packets must lose about 20.
        (link(loss_pct=0.1), 0, drop_count(0, all_packets=20_000, all_lost=20), []),
        (link(loss_pct=0.1), 0, drop_count(0, all_packets=20_000, all_lost=0), ["loss"]),
        (link(loss_pct=0.1), 4, drop_count(4, all_packets=20_000, all_lost=100), ["loss"]),
        (link(loss_pct=1.0), 12, drop_count(12, all_packets=20_000, all_lost=300), ["loss"]),
        # In bursts of five, each loss is weaker evidence.
        (
            link(loss_pct=1.0, loss_burst=5.0),
            0,
            drop_count(0, all_packets=20_000, all_lost=260),
            [],
        ),
        # Packets with a wrong checksum are missing but were not dropped; duplicates arrive separately.
        (link(loss_pct=5.0, corrupt_pct=1.0), 48, drop_count(40), []),
        (link(loss_pct=5.0), 40, None, []),
    ],
)
def test_losses_are_held_against_what_the_wire_itself_says_of_them(asked, lost, counted, names):
    assert broken(asked, replace(seen(lost=lost), drop_count=counted)) == names


def test_damage_is_loss_too():
    assert link(loss_pct=10.0, corrupt_pct=10.0).lost_pct == pytest.approx(19.0)


def test_right_links_are_hardly_ever_called_wrong():
    asked, stream = link(loss_pct=5.0, loss_burst=4.0), random.Random(1)
    assert loss_burst_chances(asked).end == 0.25
    wrong = sum(bool(broken(asked, lose_in_bursts(stream, 800, 0.05, 0.25))) for _ in range(500))
    assert wrong <= 10  # 2 %


def lose_in_bursts(stream, packets, loss, ends):
    begins, inside, lost, gaps = ends * loss / (1 - loss), False, 0, 0
    for _ in range(packets):
        before, lost = inside, lost + inside
        inside = stream.random() < (1 - ends if inside else begins)
        gaps += before and not inside
    return seen(packets, lost, gaps)
