"""What a look at the links says."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from cluster.contract import look as look_module
from cluster.contract.look import Look, judge_look, look_at_links
from cluster.contract.measured import Measured
from cluster.links.expected import Expected
from protocol.link import Link


def _look(number):
    links = [Link(f"node{n}", "node1", 10.0, 25.0, 0.0, 0.0, 50.0) for n in range(2, number + 2)]
    return Look(0.1, {}, dict.fromkeys(links, ("delay", "rtt")))


def test_it_names_each_link_that_is_not_as_asked_with_what_is_not():
    assert _look(0).words() == ""
    assert _look(2).words() == "node2 -> node1 (delay, rtt), node3 -> node1 (delay, rtt)"


def test_of_many_it_names_a_few_and_their_number():
    words = _look(3000).words()
    assert words.endswith("node6 -> node1 (delay, rtt) and 2995 more links"), words[-80:]


class Counting(tuple):
    """Links that count how often somebody goes through all of them."""

    passes = 0

    def __iter__(self):
        Counting.passes += 1
        return super().__iter__()


def test_judging_takes_no_pass_over_all_links_for_each_of_them():
    """128 nodes have 16,256 links: a look took minutes of computing."""
    nodes = [f"node{n}" for n in range(1, 21)]
    links = [Link(a, b, 10.0, 25.0, 1.0, 0.0, 50.0) for a in nodes for b in nodes if a != b]
    found = Measured(
        50.0,
        jitter_ms=1.0,
        samples=4,
        sent=4,
        arrived=4,
        reordered=0,
        early_rtt_ms=50.0,
        delay_ms=25.0,
    )
    asked = Expected(Counting(links))
    look = judge_look(1.0, asked, dict.fromkeys(links, found))
    assert look.failed == {} and Counting.passes < 10


THERE = Link("node1", "node2", 10.0, 25.0, 0.0, 0.0, 50.0)
BACK = Link("node2", "node1", 10.0, 25.0, 0.0, 0.0, 50.0)
RIGHT = Measured(
    50.0, 0.1, samples=4, sent=4, arrived=4, reordered=0, early_rtt_ms=50.0, delay_ms=25.0
)
LATE = replace(RIGHT, rtt_ms=90.0, early_rtt_ms=90.0)
LOST = replace(RIGHT, arrived=3)


@pytest.mark.parametrize(
    ("first", "second", "pinged", "failed"),
    [
        (RIGHT, None, [2], ()),
        (LATE, RIGHT, [2, 1], ()),
        (LATE, LATE, [2, 1], ("rtt",)),
        (LATE, LOST, [2, 1], ("loss",)),
        (LOST, None, [2], ("loss",)),  # by chance it would lose nothing the second time
    ],
)
def test_late_pings_are_repeated_once(monkeypatch, first, second, pinged, failed):
    answers, asked_for = iter((first, second)), []

    def ping(session, links, asked, order):
        asked_for.append(len(links))
        return dict.fromkeys([THERE.ends, BACK.ends], RIGHT) | {THERE.ends: next(answers)}

    monkeypatch.setattr(look_module, "ProbeSession", lambda _: nullcontext())
    monkeypatch.setattr(look_module, "expected_of", lambda _: Expected((THERE, BACK)))
    monkeypatch.setattr(look_module, "ping_each_pair", ping)
    look = look_at_links(None, None)
    assert asked_for == pinged
    assert look.failed == ({THERE: failed} if failed else {})
