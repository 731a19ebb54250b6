"""The summary of a learner and its actors, and the predicted age of their weights."""

import math

import pytest

from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.broadcast import Receipt
from cluster.accounting.experience import experience_summary, predicted_age_s
from cluster.accounting.metrics import LastLines
from protocol.metrics import read_line
from protocol.reader import FormatError

DISTRIBUTION = {"mean": 2.0, "median": 1.5, "p95": 4.0, "max": 9.0}
ACTED = {
    "pieces": 40,
    "steps": 900,
    "connections": 1,
    "lives": 1,
    "duplicates": 0,
    "weights_age_s": 2.5,
    "pulled_bytes": 1_000_000,
    "step_interval_s": 0.01,
}
EXPERIENCE = {
    "env_steps": 1900,
    "pieces": 80,
    "rejected": 8,
    "mean_steps": 23.75,
    "mean_steps_kept": 20.1,
    "replay_ratio": 1.2,
    "duplicates": 0,
    "malformed": 0,
    "received_bytes": 400_000,
    "updates_s": 4.0,
    "staleness_updates": DISTRIBUTION,
    "staleness_s": DISTRIBUTION,
    "weights_age_s": DISTRIBUTION,
    "pull_every": 400,
    "publish_every": 5,
    "broadcast": "star",
    "changed": None,
    "actors": {"1": ACTED, "2": {"pieces": 40, "connections": 3, "lives": 2, "duplicates": 4}},
}
END = {
    "event": "end",
    "rank": 0,
    "time": 1.0,
    "experience": EXPERIENCE,
    "collectives": [
        {
            "kind": "message",
            "purpose": "weights",
            "bytes": 50,
            "count": 3,
            "waited_s": 0.0,
            "to": {"1": {"bytes": 100, "messages": 2}, "2": {"bytes": 50, "messages": 1}},
        }
    ],
}
# 5 MB/s and 25 ms each way; rank 2 cannot be reached.
ROUTE = RankRoute(0.025, 5e6, ())
NETWORK = Network({(0, 1): ROUTE, (1, 0): ROUTE}, {}, "asked")


def told(end):
    return {"node1": LastLines(end=read_line(end)), "node2": LastLines(), "node3": LastLines()}


def test_the_summary_says_what_the_learner_said_and_what_links_allow():
    summary = experience_summary(told(END), NETWORK)
    assert summary["rejected_share"] == 0.1
    assert summary["staleness_updates"] == DISTRIBUTION
    assert summary["bytes"] == {"weights": 150}
    assert summary["broadcast"] is None
    near, far = summary["actors"]["node2"], summary["actors"]["node3"]
    # Every fifth update of 0.25 s is published, so 0 to 4 updates were made since: 0.5 s on average. Weights travel for
    # 0.225 s and act for 4 s.
    assert near["predicted_weights_age_s"] == pytest.approx(0.5 + 0.225 + 4 / 2)
    assert near["predicted_over_measured"] == pytest.approx(2.725 / 2.5)
    assert far["predicted_weights_age_s"] is None
    assert far["lives"] == 2


def test_of_a_broadcast_what_is_predicted_is_when_weights_come():
    """A version of 1 MB every 1.25 s, complete 0.2 s plus a delay after its publication."""
    came = Receipt(0, 1_000_000, True, 100.0, 100.3)
    summary = experience_summary(told(END), NETWORK, {5: {1: came}})
    actor = summary["actors"]["node2"]
    assert actor["predicted_weights_age_s"] == pytest.approx(0.225 + 1.25 / 2)
    assert summary["broadcast"]["topology"] == "star"
    assert (summary["broadcast"]["versions"], summary["broadcast"]["timed"]) == (1, 0)


def test_where_nothing_is_known_of_links_nothing_is_predicted():
    summary = experience_summary(told(END), None)
    assert summary["actors"]["node2"]["predicted_weights_age_s"] is None


def test_without_a_learner_there_is_nothing():
    end = {name: value for name, value in END.items() if name != "experience"}
    assert experience_summary(told(end), NETWORK) is None
    assert experience_summary({"node1": LastLines()}, NETWORK) is None


def simulated_age_s(route, weights_bytes, pull_s, publish_every, update_s):
    """Return the mean age of acting weights, from an event simulation of an actor and its learner."""
    travel_s = route.delay_s + weights_bytes / route.byte_s
    now, made_at, ages = 0.0, 0.0, []
    for number in range(4000):
        asked_at = now + route.delay_s
        looked = math.ceil((asked_at + number * 1e-4) / update_s)  # between two updates
        comes_at = looked * update_s + travel_s
        until = max(now + pull_s, comes_at)
        newest = looked // publish_every * publish_every * update_s
        ages.append(((now + comes_at) / 2 - made_at, comes_at - now))
        ages.append(((until + comes_at) / 2 - newest, until - comes_at))
        now, made_at = until, newest
    return sum(age * s for age, s in ages) / sum(s for _, s in ages)


@pytest.mark.parametrize("pull_s", [0.7, 3.3, 20.1])
def test_the_prediction_is_what_a_simulation_gives(pull_s):
    found = predicted_age_s(
        ROUTE,
        ROUTE,
        weights_bytes=1e6,
        pull_interval_s=pull_s,
        publish_interval_s=1.25,
        update_s=0.25,
    )
    assert found == pytest.approx(simulated_age_s(ROUTE, 1e6, pull_s, 5, 0.25), rel=0.15)


def test_an_actor_asks_no_sooner_than_it_has_an_answer():
    """Over a link of 0.1 MB/s weights travel 10 s: they arrive 10 s old, and half of the next wait adds to that."""
    slow = RankRoute(0.0, 1e5, ())
    age_s = predicted_age_s(
        ROUTE,
        slow,
        weights_bytes=1e6,
        pull_interval_s=0.1,
        publish_interval_s=0.0,
        update_s=0.0,
    )
    assert age_s == pytest.approx(10 + (10 + 0.025) / 2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("pieces", -1),
        ("pieces", math.inf),
        ("updates_s", "4"),
        ("staleness_s", [1, 2]),
        ("staleness_s", {"mean": None}),
        ("actors", {"one": {}}),
        ("actors", {"1": {"pieces": "many"}}),
        ("actors", [1]),
        ("actors", {"1": {}}),
        ("staleness_s", {"x": 1.0}),
    ],
)
def test_what_a_hostile_learner_says_counts_as_not_said(name, wrong):
    read_line(END | {"seconds": {}})
    without = {k: v for k, v in EXPERIENCE.items() if k != name}
    for experience in (EXPERIENCE | {name: wrong}, without):
        with pytest.raises(FormatError, match=f"experience.{name}"):
            read_line(END | {"experience": experience})
