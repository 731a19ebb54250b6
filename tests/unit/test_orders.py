"""Orders as lines of JSON: the key `do` tells them apart, and anything else is refused with the key at fault."""

import json

import pytest
from plans import node_plan

from protocol import probe, trace
from protocol.lines import encode_order, parse_order, read_each, read_either
from protocol.link import Link
from protocol.reader import FormatError

PLAN = node_plan([2], [Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)])
SEND = probe.FloodSend(
    0.5, "10.0.0.2", 29401, at_once=8, queued_bytes=60_000, seconds=0.3, datagrams=500
)


@pytest.mark.parametrize(
    ("kinds", "word", "order"),
    [
        (probe.ORDERS, "ping", probe.PingOrder({"node2": "10.0.0.2"}, 100, 10.0, 500.0)),
        (probe.ORDERS, "arrivals", probe.ArrivalsOrder({"node1": ("10.0.0.1", 3)})),
        (probe.ORDERS, "send", probe.SendOrder("10.0.0.2", 2.0, 1.0, 20.0)),
        (
            probe.ORDERS,
            "flood",
            probe.FloodOrder({"node2": SEND}, {"node2": probe.FloodCount(29402, 0.1, None)}, 1.5),
        ),
        (trace.ORDERS, "begin", trace.BeginOrder("0")),
        (trace.ORDERS, "end", trace.EndOrder("0")),
        (trace.ORDERS, "apply", trace.ApplyOrder(PLAN)),
    ],
)
def test_an_order_crosses_as_one_line_with_its_word(kinds, word, order):
    line = encode_order(kinds, order)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line)["do"] == word
    assert parse_order(kinds, line) == order


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "no JSON"),
        ("[" * 10**5, "no JSON"),
        ("[]", r"expected an object, got \[\]"),
        ("{}", "do: missing"),
        ('{"do": "jump"}', "do: expected one of begin, end, apply, got 'jump'"),
        ('{"do": ["end"]}', r"do: expected one of begin, end, apply, got \['end'\]"),
        ('{"do": "end"}', "trace: missing"),
        ('{"do": "end", "trace": 1}', "trace: expected a text, got 1"),
        ('{"do": "end", "trace": "0", "at": 1}', "at: unknown key"),
        ('{"do": "apply", "plan": {"node": "a b"}}', "plan.node: expected one word, got 'a b'"),
    ],
)
def test_what_is_no_order(line, words):
    with pytest.raises(FormatError, match=words):
        parse_order(trace.ORDERS, line)


def test_answers_are_told_apart_by_a_key():
    assert read_either(trace.ANSWERS, {"applied": True}) == trace.Applied()
    with pytest.raises(FormatError, match="applied: unknown key"):
        read_either(trace.ANSWERS, {"applied": True, "ready": True})
    with pytest.raises(FormatError, match="expected one of the keys ready, applied, ended"):
        read_either(trace.ANSWERS, {"done": True})


def test_an_answer_has_what_was_asked_for_and_nothing_else():
    said = {
        "node1": {"datagrams_s": 1, "full_pct": None, "sent_datagrams_s": None},
        "node2": {"datagrams_s": 2, "full_pct": 99.5, "sent_datagrams_s": 2.5},
    }
    assert list(read_each(probe.Flooded, ["node2", "node1"], said)) == ["node2", "node1"]
    for names, words in ((["node1"], "node2: nobody asked"), ([*said, "node3"], "node3: missing")):
        with pytest.raises(FormatError, match=words):
            read_each(probe.Flooded, names, said)
