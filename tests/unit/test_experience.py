"""The summary of a learner and its actors, and the predicted age of their weights."""

import heapq
import math
import random

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
SHARED = RankRoute(0.02, 1e6, ("node1 uplink",))
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


def simulated_age_s(route, weights_bytes, pull_s, publish_every, update_s, acts_meanwhile=True):
    """Return the mean age of acting weights, from an event simulation of an actor and its learner.

    `acts_meanwhile`: also while weights are on their way to it.
    """
    travel_s = route.delay_s + weights_bytes / route.byte_s
    now, made_at, ages = 0.0, 0.0, []
    for number in range(4000):
        asked_at = now + route.delay_s
        looked = math.ceil((asked_at + number * 1e-4) / update_s)  # between two updates
        comes_at = looked * update_s + travel_s
        until = max(now + pull_s, comes_at)
        newest = looked // publish_every * publish_every * update_s
        acts_until = comes_at if acts_meanwhile else comes_at - travel_s
        ages.append(((now + acts_until) / 2 - made_at, acts_until - now))
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


@pytest.mark.parametrize("pull_s", [0.7, 3.3, 20.1])
@pytest.mark.parametrize("size", [1e6, 1e7])
def test_weights_that_hold_back_acknowledgements_are_used_for_less_time(size, pull_s):
    """An actor with a full window stands still while weights come, and then acts by these, not by older ones."""
    travel_s = ROUTE.delay_s + size / ROUTE.byte_s
    cycle_s = max(pull_s, travel_s + ROUTE.delay_s + 0.125)
    said = predicted_age_s(
        ROUTE,
        ROUTE,
        weights_bytes=size,
        pull_interval_s=pull_s,
        publish_interval_s=1.25,
        update_s=0.25,
        window_full_share=travel_s / cycle_s,
    )
    simulated_s = simulated_age_s(ROUTE, size, pull_s, 5, 0.25, acts_meanwhile=False)
    assert said == pytest.approx(simulated_s, rel=0.15)


def test_a_window_that_was_full_is_part_of_the_prediction():
    """Of 4 s between pulls the actor stands still for 0.2 s, or for all of the 0.225 s that weights travel."""
    for share, still_s in ((0.05, 0.2), (0.5, 0.225), (7.0, 0.225)):
        actor = ACTED | {"window_full_share": share}
        end = END | {"experience": EXPERIENCE | {"actors": {"1": actor}}}
        summary = experience_summary(told(end), NETWORK)["actors"]["node2"]
        assert summary["predicted_weights_age_s"] == pytest.approx(
            0.725 + (4 - still_s) / 2, abs=1e-4
        )


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


def simulated_shared_age_s(actors, size, pull_s, update_s=0.25, publish_every=5):
    """Return the mean age of acting weights, from an event simulation of actors that share the uplink of SHARED fairly.

    Actors begin at different times, and their intervals vary by a tenth.
    """
    draw = random.Random(1)
    events = [(draw.uniform(0, pull_s), rank, "ask") for rank in range(actors)]
    heapq.heapify(events)
    left, asked, sent, held, ages = {}, {}, {}, {}, []  # by actor; bytes; (version's time, since)
    now = 0.0
    while len(ages) < 300 * actors:
        first = min(left, key=left.get, default=None)
        ends = math.inf if first is None else now + left[first] * len(left) / SHARED.byte_s
        comes = events[0][0] if events else math.inf
        carried = (min(ends, comes) - now) * SHARED.byte_s / max(1, len(left))
        left = {rank: of - carried for rank, of in left.items()}
        now = min(ends, comes)
        if ends <= comes:
            del left[first]
            heapq.heappush(events, (now + SHARED.delay_s, first, "take"))
            continue
        _, rank, what = heapq.heappop(events)
        if what == "ask":  # it is read between two updates
            asked[rank], read = now, math.ceil((now + SHARED.delay_s) / update_s)
            sent[rank] = read // publish_every * publish_every * update_s
            heapq.heappush(events, (read * update_s, rank, "answer"))
        elif what == "answer":
            left[rank] = size
        else:
            if rank in held:
                made_at, since = held[rank]
                ages.append(((now + since) / 2 - made_at, now - since))
            held[rank] = sent[rank], now
            next_s = max(now, asked[rank] + pull_s * draw.uniform(0.9, 1.1))
            heapq.heappush(events, (next_s, rank, "ask"))
    return sum(age * s for age, s in ages) / sum(s for _, s in ages)


def actors_summary(actors, size, pull_s, carriers):
    """Return what is said of actors that pull this many bytes over routes with these carriers, by rank."""
    acted = ACTED | {"pulled_bytes": size, "step_interval_s": pull_s / EXPERIENCE["pull_every"]}
    acted["weights_age_s"] = simulated_shared_age_s(actors, size, pull_s)
    ranks = range(1, actors + 1)
    end = END | {"experience": EXPERIENCE | {"actors": {str(rank): acted for rank in ranks}}}
    routes = {(0, rank): RankRoute(SHARED.delay_s, 1e6, carriers(rank)) for rank in ranks}
    routes |= {(rank, 0): RankRoute(SHARED.delay_s, 1e6, ()) for rank in ranks}
    byte_s = {name: 1e6 for rank in ranks for name in carriers(rank)}
    all_told = {f"node{rank + 1}": LastLines() for rank in range(actors + 1)}
    all_told["node1"] = LastLines(end=read_line(end))
    return experience_summary(all_told, Network(routes, byte_s, "asked"))["actors"]


@pytest.mark.parametrize(
    ("actors", "size", "pull_s"),
    [
        *((8, 8e6, 5.0), (2, 8e6, 5.0), (8, 0.45e6, 2.0), (8, 0.45e6, 5.0)),
        *((8, 0.45e6, 3.8), (4, 0.45e6, 2.0), (2, 0.45e6, 1.0), (2, 0.45e6, 0.5), (3, 1e5, 1.0)),
    ],
)
def test_answers_that_share_an_uplink_take_longer(actors, size, pull_s):
    said = actors_summary(
        actors, size, pull_s, lambda rank: ("node1 uplink", f"node1->node{rank + 1}")
    )
    assert len(said) == actors
    for one in said.values():
        assert 0.8 <= one["predicted_over_measured"] <= 1.25


def test_answers_that_share_nothing_do_not_delay_each_other():
    for one in actors_summary(8, 8e6, 5.0, lambda rank: (f"node1->node{rank + 1}",)).values():
        # 8.02 s on the way; an answer takes those, the request's 0.02 s, and half an update until it is read.
        assert one["predicted_weights_age_s"] == pytest.approx(0.5 + 8.02 + 8.165 / 2, abs=1e-4)


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
