"""Changes of single links, and the plans that result from them."""

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.changes import Change, change_plans, make_changes, parse_seconds, undo_changes
from cluster.links.link_spec import link_plans, make_link_spec

PLANS = link_plans(ClusterSpec(size=3).nodes, make_link_spec("mobile", "star", 1, "auto"))


def values_of(plan, src, dst):
    return next(link for link in plan.links if link.ends == (src, dst))


def test_a_change_is_told_to_both_ends_and_to_nobody_else():
    changed = change_plans(PLANS, [Change("node1", "node3", {"delay_ms": 80.0, "loss_pct": 2.0})])
    assert set(changed) == {"node1", "node3"}
    for plan in changed.values():
        link = values_of(plan, "node1", "node3")
        assert (link.delay_ms, link.loss_pct) == (80.0, 2.0)
        before = values_of(PLANS["node1"], "node1", "node3")
        assert link.rate_mbyte_s == before.rate_mbyte_s
        assert before.loss_pct == 0.0  # the plans in force are untouched
    back = values_of(changed["node3"], "node3", "node1")
    assert back == values_of(PLANS["node3"], "node3", "node1")


def test_both_directions_on_demand():
    values = {"loss_pct": 100.0, "delay_ms": None}
    changes = make_changes(["node1:node2"], values, both=True)
    assert [(c.src, c.dst) for c in changes] == [("node1", "node2"), ("node2", "node1")]
    assert changes[0].values == {"loss_pct": 100.0}


def test_a_link_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError, match="(?s)unknown link 'node2:node3'.*node1:node3"):
        change_plans(PLANS, [Change("node2", "node3", {"delay_ms": 1.0})])


@pytest.mark.parametrize(
    ("links", "values", "words"),
    [
        (["node1"], {"delay_ms": 1.0}, "no link"),
        (["node1:node1"], {"delay_ms": 1.0}, "no link"),
        (["node1:node2"], {"delay_ms": None}, "nothing to change"),
        (["node1:node2"], {"loss_pct": 101.0}, "loss_pct is 101"),
        (["node1:node2"], {"rate_mbyte_s": 0.0}, "rate_mbyte_s is 0"),
    ],
)
def test_what_cannot_be_is_refused(links, values, words):
    with pytest.raises(UsageError, match=words):
        make_changes(links, values, both=False)


def test_taking_a_change_back_leaves_what_others_have_changed():
    mine = [Change("node1", "node3", {"delay_ms": 80.0, "rate_mbyte_s": 1.0})]
    theirs = [
        Change("node1", "node2", {"delay_ms": 40.0}),
        Change("node1", "node3", {"rate_mbyte_s": 2.0}),
    ]
    now = dict(PLANS)
    for changes in (mine, theirs):
        now |= change_plans(now, changes)
    (undone,) = undo_changes(PLANS, now, mine)
    assert undone.values == {"delay_ms": values_of(PLANS["node1"], "node1", "node3").delay_ms}
    now |= change_plans(now, [undone])
    for node in ("node1", "node3"):
        assert values_of(now[node], "node1", "node3").rate_mbyte_s == 2.0
        assert values_of(now[node], "node1", "node3").delay_ms == undone.values["delay_ms"]
    assert values_of(now["node2"], "node1", "node2").delay_ms == 40.0


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("500ms", 0.5), ("1.5m", 90)])
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["10", "s", "-1s", "ten s"])
def test_what_is_no_duration(text):
    with pytest.raises(UsageError, match="no duration"):
        parse_seconds(text)


def test_a_delay_that_leaves_no_room_for_the_jitter_is_refused():
    """No packet arrives before it is sent: such a link could never be as asked."""
    jittery = {
        name: plan._replace(
            links=[link._replace(delay_ms=80.0, jitter_ms=30.0) for link in plan.links]
        )
        for name, plan in PLANS.items()
    }
    with pytest.raises(
        UsageError, match="node1 -> node3: jitter_ms 30 is more than half of delay_ms 20"
    ):
        change_plans(jittery, [Change("node1", "node3", {"delay_ms": 20.0})])
    both = {"delay_ms": 20.0, "jitter_ms": 10.0}
    assert change_plans(jittery, [Change("node1", "node3", both)])
