"""Proofs: what they depend on, what invalidates them, and what a look detects."""

import json
import shutil
from dataclasses import replace

import pytest

from cluster.base.spec import ClusterSpec
from cluster.contract import prover
from cluster.contract.look import judge_look
from cluster.contract.measured import Measured
from cluster.contract.probe_plan import LOOK_S, look_pings, ping_s
from cluster.contract.proof import PARTS, Proof, make_standing, read_proof
from cluster.contract.verdicts import Contract, judge
from cluster.engine.resources import Limit, enforced_limits
from cluster.links.expected import Expected
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run.launch_words import FULL, LOOK, NONE, parse_verify
from protocol.link import Link
from protocol.link_report import Marks, Settings

SPEC = ClusterSpec(size=3)
NAMES = [node.name for node in SPEC.nodes]
PLANS = link_plans(SPEC.nodes, make_link_spec("mobile", "full", 1, "auto", isolated=False))
SETTINGS = dict.fromkeys(NAMES, Settings("6.1", 1, 1, 1, 1, True, "cubic", 1500))
MARKS = dict.fromkeys(NAMES, Marks(*Marks._fields))
IDS = {name: f"id-of-{name}" for name in NAMES}
LIMITS = dict.fromkeys(NAMES, Limit().document())
CONTRACT = {"holds": True, "verdict": "all 6 links hold", "links": [{"measured": {"rtt_ms": 1.5}}]}


def standing(plans=PLANS, settings=SETTINGS, ids=IDS, limits=LIMITS, judge="today", marks=MARKS):
    return make_standing(plans, settings, ids, limits, judge, marks)


def of_node2(values, **changes):
    """Return the values with node2's changed."""
    changed = changes.get("value") or values["node2"]._replace(**changes)
    return values | {"node2": changed}


PROOF = Proof(standing(), "2026-11-25T00:38:20+00:00", CONTRACT)


def test_the_same_is_the_same():
    assert PROOF.standing.differences(standing()) == []
    assert PROOF.standing.is_whole


def test_every_part_that_nodes_tell_has_words():
    assert set(Marks._fields) < PARTS.keys()
    assert standing().nodes["node1"].keys() == PARTS.keys()


@pytest.mark.parametrize("part", Marks._fields)
def test_each_mark_of_one_node_ends_a_proof_and_names_the_node(part):
    now = standing(marks=of_node2(MARKS, **{part: "another"}))
    assert PROOF.standing.differences(now) == [f"{PARTS[part]} (node2)"]


@pytest.mark.parametrize(
    ("now", "part"),
    [
        ({"plans": of_node2(PLANS, seed=7)}, "plan"),
        ({"plans": {name: PLANS[name] for name in ("node1", "node3")}}, "plan"),
        ({"settings": of_node2(SETTINGS, wmem_max_bytes=2)}, "settings"),
        ({"ids": of_node2(IDS, value="made-anew")}, "container"),
        ({"limits": of_node2(LIMITS, value=Limit(cpus=0.5).document())}, "limit"),
    ],
)
def test_so_does_each_thing_that_the_host_knows_of_it(now, part):
    """They are compared also before the nodes are asked for their marks."""
    for marks in (MARKS, None):
        found = PROOF.standing.differences(standing(**now, marks=marks))
        assert found == [f"{PARTS[part]} (node2)"]


@pytest.mark.parametrize(
    "host_config",
    [
        {"CpuPeriod": 100_000, "CpuQuota": 50_000},
        {"NanoCpus": 500_000_000},
        {"CpuPeriod": 4_000, "CpuQuota": 2_000, "CpusetCpus": "0,1"},
        {"CpuPeriod": 4_000, "CpuQuota": 2_000, "CpuShares": 512},
    ],
    ids=str,
)
def test_a_limit_that_is_enforced_otherwise_ends_a_proof_too(host_config):
    """It is half a processor in each case; with a period of 100 ms a node and its wire stop for tens of ms."""
    ours, other = ({"CpuPeriod": 4_000, "CpuQuota": 2_000}, host_config)
    before, after = (
        standing(limits=of_node2(LIMITS, value=enforced_limits(it))) for it in (ours, other)
    )
    assert before.differences(after) == [f"{PARTS['limit']} (node2)"]
    assert before.differences(standing(limits=of_node2(LIMITS, value=enforced_limits(ours)))) == []


def test_other_nodes_and_another_gradwire_prove_for_themselves():
    fewer = standing(ids={name: IDS[name] for name in ("node1", "node2")})
    assert PROOF.standing.differences(fewer) == ["other nodes"]
    other = PROOF.standing.differences(standing(judge="tomorrow"))
    assert other == ["another version of gradwire"]


def test_a_rate_that_differs_by_one_bit_a_second_is_another_plan():
    link = PLANS["node2"].links[0]
    faster = link._replace(rate_mbyte_s=link.rate_mbyte_s + 1.25e-7)
    plan = PLANS["node2"]._replace(links=[faster, *PLANS["node2"].links[1:]])
    assert PROOF.standing.differences(standing(plans=of_node2(PLANS, value=plan)))


def test_without_marks_a_standing_proves_nothing():
    assert not standing(marks=None).is_whole
    assert not standing(ids={}).is_whole
    assert read_proof(json.dumps(replace(PROOF, standing=standing(marks=None)).document())) is None


def test_a_proof_is_read_as_it_was_kept():
    assert read_proof(json.dumps(PROOF.document())) == PROOF


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"at": None, "nodes": None},
        {"nodes": {}},
        {"nodes": {"node1": {"plan": "another"}}},
        {"judge": "another"},
        {"contract": {}},
        {"contract": CONTRACT | {"holds": False}},
    ],
    ids=str,
)
def test_one_that_was_changed_or_damaged_is_none(change):
    assert read_proof(json.dumps(PROOF.document() | change)) is None


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, b"\xff"], ids=repr)
def test_what_is_no_document_is_none(text):
    assert read_proof(text) is None


THERE = Link("node1", "node2", 5.0, 20.0, 0.0, 0.0, 40.0)
BACK = THERE._replace(src="node2", dst="node1")


DELAYS = ("rtt_ms", "early_rtt_ms", "delay_ms", "early_delay_ms")
SEEN = Measured(40.1, 0.1, 10, 10, 10, 0, early_rtt_ms=40.0, delay_ms=20.05, early_delay_ms=20.0)


def seen(*, there=THERE, **values):
    asked = Expected((there, BACK))
    found = replace(SEEN, **values)
    return judge_look(1.0, asked, {there: found})


@pytest.mark.parametrize(
    ("values", "failed"),
    [
        ({}, ()),
        ({"rtt_ms": 55.0}, ()),  # late because of the host: the fastest pings are as requested
        ({"rtt_ms": 42.0, "early_rtt_ms": 41.9}, ("rtt",)),
        ({"rtt_ms": 38.0, "early_rtt_ms": 37.9}, ("rtt",)),
        ({"delay_ms": 27.0}, ()),
        ({"delay_ms": 21.2, "early_delay_ms": 21.1}, ("delay",)),
        ({"delay_ms": 18.0, "early_delay_ms": 17.9}, ("delay",)),
        ({"arrived": 9}, ("loss",)),
        (
            {"arrived": 0, **dict.fromkeys(DELAYS, float("inf"))},
            ("loss", "delay", "rtt"),
        ),
    ],
    ids=str,
)
def test_a_look_sees_delays_and_losses(values, failed):
    look = seen(**values)
    assert look.failed == ({THERE: failed} if failed else {})
    assert look.words() == (f"node1 -> node2 ({', '.join(failed)})" if failed else "")


def test_of_a_lossy_link_it_sees_only_that_something_comes_through():
    lossy = THERE._replace(loss_pct=5.0)
    assert not seen(there=lossy, arrived=6).failed
    assert seen(there=lossy, arrived=0).failed == {lossy: ("loss",)}


def test_of_a_cut_link_it_sees_that_nothing_does():
    cut, nothing = (
        THERE._replace(loss_pct=100.0),
        {**dict.fromkeys(DELAYS, float("inf")), "arrived": 0},
    )
    assert not seen(there=cut, **nothing).failed
    assert seen(there=cut, arrived=10).failed == {cut: ("loss",)}


@pytest.mark.parametrize(("size", "most_s"), [(3, 1.1), (64, 5.0)])
def test_its_pings_are_soon_over_and_not_more_than_a_machine_can_send(size, most_s):
    """Two processors send 6,000 pings a second, but late: of 64 nodes, each look found a thousand links off."""
    spec = ClusterSpec(size=size)
    plans = link_plans(spec.nodes, make_link_spec("mobile", "full", 1, "auto", isolated=False))
    links = [link for plan in plans.values() for link in plan.outgoing().values()]
    streams = size * (size - 1) // 2 + size
    order = look_pings(links, {}, streams)
    assert 3 <= order.pings <= 10 and ping_s(order) <= most_s
    assert streams * 1000 / order.interval_ms <= 1500.1
    slow = look_pings([THERE._replace(rate_mbyte_s=0.01)], {}, 2)
    assert slow.pings * slow.interval_ms <= 1000 * LOOK_S


def test_how_links_are_verified_is_a_word_or_yes_or_no():
    assert [parse_verify(word) for word in (True, False)] == [LOOK, NONE]
    assert [parse_verify(word) for word in (LOOK, FULL, NONE)] == [LOOK, FULL, NONE]


def test_figures_and_dates_of_a_proof_cannot_be_changed():
    changed = PROOF.document()
    changed["at"] = "1999-01-01T00:00:00+00:00"
    assert read_proof(json.dumps(changed)) is None


def test_what_was_not_measured_is_not_proved():
    """All links hold, but one was too silent for its speed to be measured; one way of another is cut."""

    def row(link, goodput_mbyte_s=None):
        found = replace(SEEN, goodput_mbyte_s=goodput_mbyte_s)
        return judge(link, Expected((link, THERE, BACK)), found)

    whole = row(THERE, 4.77), row(BACK, 4.77)
    cut = THERE._replace(dst="node3", loss_pct=100.0)
    silent = cut._replace(src="node3", dst="node1", loss_pct=0.0)
    assert Contract(whole).has_all_speeds
    assert Contract((*whole, row(cut), row(silent))).has_all_speeds
    assert not Contract((*whole, row(silent))).has_all_speeds


def test_another_version_of_what_judges_proves_for_itself(monkeypatch, tmp_path):
    """The expected values, paths and the host's load are computed outside of cluster/contract."""
    own, code_dir = prover.judging_code.__wrapped__, prover.CODE_DIR
    before = own()
    for folder in prover.JUDGING:
        shutil.copytree(prover.CODE_DIR / folder, tmp_path / folder)
    monkeypatch.setattr(prover, "CODE_DIR", tmp_path)
    assert own() == before
    for folder in prover.JUDGING:
        (tmp_path / folder / "__init__.py").write_text(f"# {folder}")
        assert own() != before
        shutil.copytree(code_dir / folder, tmp_path / folder, dirs_exist_ok=True)
