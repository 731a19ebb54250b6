"""Changes of single links, and the plans that result from them."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

import cluster.shape
from cluster import api
from cluster.base import spec
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


@pytest.mark.parametrize(
    ("link", "values", "hint"),
    [
        ("node1:node2", {}, "delay_ms: 80 (on the command line: --delay 80)"),
        ("node1-node2", {"delay_ms": 1.0}, "node1:node3, from the first to the second"),
    ],
)
def test_a_hint_is_right_in_a_schedule_as_on_the_command_line(link, values, hint):
    with pytest.raises(UsageError) as refused:
        make_changes([link], values, both=False)
    assert refused.value.hint == hint


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


def test_a_change_of_a_link_that_nobody_asks_for_any_more_is_not_undone():
    changed = change_plans(PLANS, OWN)
    line = link_plans(ClusterSpec(size=3).nodes, make_link_spec("mobile", "ring", 1, "auto"))
    without = {name: plan._replace(links=[]) for name, plan in line.items()}
    assert undo_changes(without, changed, OWN) == []


OWN = [Change("node1", "node3", {"delay_ms": 80.0})]
OTHER = [Change("node1", "node3", {"delay_ms": 90.0})]
LOSSY = [Change("node1", "node3", {"loss_pct": 2.0})]


class FakeLinks:
    """The links of a cluster without nodes."""

    def __init__(self, monkeypatch, folder):
        self.plans = dict(PLANS)
        monkeypatch.setattr(spec, "PROJECT_DIR", folder)
        monkeypatch.setattr(api, "read_record", lambda _: dict(PLANS))
        monkeypatch.setattr(api, "apply_some", lambda _, plans: self.plans.update(plans))
        monkeypatch.setattr(api, "time", SimpleNamespace(sleep=lambda wait: wait()))
        ClusterSpec("lab").state_dir.mkdir(parents=True)

    def cluster(self, monkeypatch):
        own = api.Cluster("lab")
        own.alone, own._spec = nullcontext(), ClusterSpec("lab")
        own.console = SimpleNamespace(say=lambda words: None)
        monkeypatch.setattr(api.Cluster, "fleet", None)
        for name in ("settle", "links"):
            monkeypatch.setattr(own, name, lambda: SimpleNamespace(plans=dict(self.plans)))
        return own

    @property
    def delay_ms(self):
        return {values_of(self.plans[n], "node1", "node3").delay_ms for n in ("node1", "node3")}


class Moments(SimpleNamespace):
    """A time that a test lets pass, in place of seconds."""

    def __init__(self):
        super().__init__(began=threading.Event(), over=threading.Event())

    def __format__(self, _):
        return "some"

    def __call__(self):
        self.began.set()
        assert self.over.wait(20)


@pytest.mark.parametrize("first", ["own", "other"])
def test_of_two_changes_for_a_while_none_stays(monkeypatch, tmp_path, first):
    """The value that the second one finds is no one's wish for longer than the first one lasts."""
    links, times = FakeLinks(monkeypatch, tmp_path), {"own": Moments(), "other": Moments()}
    threads = {}
    for name, changes in (("own", OWN), ("other", OTHER)):
        change = links.cluster(monkeypatch).change_for
        threads[name] = threading.Thread(target=change, args=(changes, times[name]), daemon=True)
        threads[name].start()
        assert times[name].began.wait(20)
        assert links.delay_ms == {changes[0].values["delay_ms"]}
    for name in sorted(threads, key=lambda name: name != first):
        times[name].over.set()
        threads[name].join(20)
    assert links.plans == PLANS


def test_a_change_within_a_block_leaves_nothing_of_another_that_ended_meanwhile(
    monkeypatch, tmp_path
):
    links, while_changed = FakeLinks(monkeypatch, tmp_path), Moments()
    change = links.cluster(monkeypatch).change_for
    other = threading.Thread(target=change, args=(OWN, while_changed), daemon=True)
    other.start()
    assert while_changed.began.wait(20)
    with links.cluster(monkeypatch).changed(lambda plans: change_plans(plans, LOSSY)):
        while_changed.over.set()
        other.join(20)
    assert links.plans == PLANS


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


class FakeCluster:
    """A cluster without nodes, whose links can be changed at will."""

    def __init__(self, name, console, force):
        self.console = console

    def shape(self, *_):
        return SimpleNamespace(document=dict)

    change = shape

    def close(self):
        pass


@pytest.fixture
def shape(monkeypatch, capsys):
    """A function that runs the verb with some words; returns its exit code and what it printed as an error."""
    monkeypatch.setattr(cluster.shape, "Cluster", FakeCluster)

    def shape(*words):
        return cluster.shape.main(["--json", *words]), capsys.readouterr().err

    return shape


ON_ONE_LINK = ("--link", "node1:node2", "--delay", "80")


@pytest.mark.parametrize("words", [ON_ONE_LINK, ("--clear",)])
@pytest.mark.parametrize(
    "option",
    [("--topology", "ring"), ("--topology=full",), ("--seed", "7"), ("--link-seed=7",)]
    + [("--wire", "netem"), ("--isolated",)],
)
def test_options_of_a_profile_are_refused_without_one(shape, words, option):
    flag = option[0].partition("=")[0]
    code, said = shape(*words, *option)
    assert (code, said.splitlines()[0]) == (2, f"error: {flag} is for --profile NAME")


@pytest.mark.parametrize("words", [("--profile", "wan"), ("--clear",)])
@pytest.mark.parametrize(
    ("option", "flag"),
    [(("--for", "5s"), "--for"), (("--both",), "--both"), (("--loss-burst=0",), "--loss-burst")],
)
def test_options_of_one_link_are_refused_by_name_without_one(shape, words, option, flag):
    code, said = shape(*words, *option)
    assert (code, said.splitlines()[0]) == (2, f"error: {flag} is for --link SRC:DST")


@pytest.mark.parametrize("words", [ON_ONE_LINK, ("--clear",), ("--profile", "wan")])
def test_options_of_a_profile_may_come_from_the_environment(shape, monkeypatch, words):
    monkeypatch.setenv("GRADWIRE_TOPOLOGY", "ring")
    monkeypatch.setenv("GRADWIRE_LINK_SEED", "7")
    assert shape(*words) == (0, "")


@pytest.mark.parametrize("words", [("--clear",), ("--profile", "wan")])
def test_values_of_one_link_may_come_from_the_environment(shape, monkeypatch, words):
    monkeypatch.setenv("GRADWIRE_DELAY", "80")
    monkeypatch.setenv("GRADWIRE_FOR", "10s")
    assert shape(*words) == (0, "")


def test_a_profile_from_the_environment_is_none_beside_a_link(shape, monkeypatch):
    monkeypatch.setenv("GRADWIRE_PROFILE", "wan")
    assert shape(*ON_ONE_LINK) == shape("--clear") == shape("--seed", "7") == (0, "")
    code, said = shape("--clear", "--profile", "wan")
    assert (code, "exactly one of" in said) == (2, True)


def test_a_seed_of_links_out_of_bounds_is_refused_before_anything_starts(shape):
    code, said = shape("--profile", "wan", "--seed", str(10**12))
    assert (code, "the link seed is 1000000000000" in said) == (2, True)
