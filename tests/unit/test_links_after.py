"""Links that change while they are measured, or while ranks run, are not passed over in silence."""

from types import SimpleNamespace

import pytest
from plans import node_plan

from cluster.base.errors import ClusterError, ContractBroken, NodeError
from cluster.contract import prover as prover_module
from cluster.contract.look import Look
from cluster.contract.measured import Measured
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.proof import PARTS, Proof, Standing
from cluster.contract.prover import Prover
from cluster.contract.verdicts import Contract, judge
from cluster.links.expected import Expected
from cluster.run import verification
from cluster.run.launch_words import LOOK
from cluster.run.verification import links_after, verify_links
from cluster.shaping.link_state import LinkState
from protocol.link import Link

THERE = Link("node1", "node2", 5.0, 20.0, 0.0, 0.0, 40.0)
BACK = THERE._replace(src="node2", dst="node1")
LINKS = (THERE, BACK)
REPLAYED = (THERE.ends,)
EVENT = SimpleNamespace(playback=None)
GOOD = Measured(
    40.0, 0.1, 60, 60, 60, 0, 4.77, early_rtt_ms=40.0, delay_ms=20.0, early_delay_ms=20.0
)
HOLDS = Contract(tuple(judge(link, Expected(LINKS), GOOD) for link in LINKS))


def links(*, node2=BACK, notes=(), replayed=()):
    """The links in force; `node2`: what node2 has, None if it has lost its link; `replayed`: by traces."""
    plans = {"node1": node_plan([2], [THERE])}
    plans |= {"node2": node_plan([1], [node2], node="node2")} if node2 else {}
    return LinkState(LINKS, plans, "cubic", notes, 1500, {}, replayed)


def standing(value="1", part="laying"):
    """Everything that decides how links behave; `value`: what node2 has of this `part`."""
    parts = dict.fromkeys(PARTS, "1")
    return Standing({"node1": parts, "node2": parts | {part: value}}, "")


@pytest.fixture
def prover(monkeypatch, tmp_path):
    """A prover whose measurement finds all links right; nodes report the same before and after it."""
    fleet = SimpleNamespace(nodes=("node1", "node2"))
    monkeypatch.setattr(prover_module, "measure_contract", lambda *_: HOLDS)
    monkeypatch.setattr(Prover, "now", lambda _: (links(), standing()))
    return Prover(None, SimpleNamespace(name="lab", state_dir=tmp_path), fleet, None)


def job(prover, **values):
    values = {"schedule": (), "allow_undecided": True, **values}
    return SimpleNamespace(link_state=links(), spec=prover.spec, verify=LOOK, **values)


def test_links_that_stay_as_they_are_hold(prover, tmp_path):
    assert verify_links(prover, job(prover), tmp_path).document["holds"] is True
    assert (tmp_path / "proof.json").exists()


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (
            links(node2=None, notes=("node2: the delayer does not run",)),
            "those of node2 are not in force any more (node2: the delayer does not run)",
        ),
        (links(node2=BACK._replace(delay_ms=300.0)), "those of node2 are others now"),
    ],
)
def test_links_that_change_while_they_are_measured_are_not_run_over(
    prover, monkeypatch, tmp_path, then, words
):
    """Not even with --allow-undecided: the measurement is of other links than those that ranks would get."""
    monkeypatch.setattr(Prover, "now", lambda _: (then, standing()))
    with pytest.raises(ContractBroken) as refused:
        verify_links(prover, job(prover), tmp_path)
    assert f"changed while the links were measured: {words}" in refused.value.message
    assert not (tmp_path / "proof.json").exists()


@pytest.mark.parametrize("part", PARTS)
def test_whatever_else_changes_while_links_are_measured_stops_a_launch_too(
    prover, monkeypatch, tmp_path, part
):
    """As `tc class change`, `docker update --cpus` or `shape --force --trace` would: the plans stay as they are."""
    (tmp_path / "proof.json").write_text("an earlier proof")
    readings = iter([(links(), standing()), (links(), standing("2", part))])
    monkeypatch.setattr(Prover, "now", lambda _: next(readings))
    with pytest.raises(ContractBroken) as refused:
        verify_links(prover, job(prover), tmp_path)
    words = f"changed while the links were measured: {PARTS[part]} (node2); nothing was started"
    assert words in refused.value.message
    assert "let nothing else change the cluster" in str(refused.value)
    assert not (tmp_path / "proof.json").exists()


def test_a_contract_without_speeds_is_compared_by_its_links_alone(prover, monkeypatch):
    """It proves nothing, and has no standing from before."""
    monkeypatch.setattr(Prover, "now", lambda _: (links(), standing("2")))
    assert prover.measure(links(), EFFORTS["quick"]).contract.holds
    monkeypatch.setattr(Prover, "now", lambda _: (links(node2=None), standing("2")))
    assert not prover.measure(links(), EFFORTS["quick"]).contract.holds


def test_links_that_a_trace_changes_are_not_measured(prover, monkeypatch, tmp_path):
    """It began after the launch had looked: its laying is the same before and after a measurement."""
    monkeypatch.setattr(Prover, "now", lambda _: (links(replayed=REPLAYED), standing()))
    monkeypatch.setattr(prover_module, "measure_contract", lambda *_: pytest.fail("measured"))
    with pytest.raises(ClusterError, match="cannot be measured: traces change node1 -> node2"):
        verify_links(prover, job(prover), tmp_path)


def test_a_trace_that_plays_once_links_are_measured_stops_a_launch(prover, monkeypatch, tmp_path):
    readings = iter([(links(), standing()), (links(replayed=REPLAYED), standing())])
    monkeypatch.setattr(Prover, "now", lambda _: next(readings))
    with pytest.raises(ContractBroken, match="links were measured: a trace plays on node1 ->"):
        verify_links(prover, job(prover), tmp_path)
    assert not (tmp_path / "proof.json").exists()


def test_a_look_at_links_that_a_trace_changes_finds_them_changed(prover, monkeypatch):
    readings = iter([links(), links(replayed=REPLAYED)])
    monkeypatch.setattr(Prover, "_standing", lambda *_: standing())
    monkeypatch.setattr(prover_module, "inspect_cluster_links", lambda *_: (next(readings), {}))
    look = Look(1.0, {}, {})
    monkeypatch.setattr(prover_module, "look_at_links", lambda *_: look)
    monkeypatch.setattr(Prover, "kept", lambda _: Proof(standing(), "yesterday", {}))
    assert prover.look(links()).changed == ""
    assert prover.look(links()).changed == "a trace plays on node1 -> node2"


def after(prover, monkeypatch, then, *, before="1", alive=("node1", "node2"), **values):
    """What is told of the links after a run."""
    link_state, now = then
    monkeypatch.setattr(
        Prover, "now", lambda _, nodes=None: (link_state, now.of(nodes) if nodes else now)
    )
    monkeypatch.setattr(verification, "read_cluster_links", lambda *_: then[0])
    verified = standing(before) if before else None
    return links_after(prover, job(prover, **values), verified, alive)


def test_links_that_are_as_they_were_have_neither_changed_nor_been_lost(prover, monkeypatch):
    told = after(prover, monkeypatch, (links(), standing()))
    assert told[1:] == ("", "") and told.stayed


def test_links_that_were_laid_again_during_the_run_are_told(prover, monkeypatch):
    told = after(prover, monkeypatch, (links(), standing("2")))
    assert told.changed == "links were applied again, or a trace has changed them (node2)"
    assert told.lost == "" and not told.stayed


def test_links_that_are_gone_are_lost_and_not_also_changed(prover, monkeypatch):
    told = after(prover, monkeypatch, (links(node2=None), standing("2")))
    assert told[1:] == ("those of node2 are not in force any more", "")
    assert not told.stayed


def test_a_trace_that_plays_at_the_end_of_a_run_is_told_unless_the_run_plays_it(
    prover, monkeypatch
):
    """It may have begun before the links were verified, and then nothing else is different."""
    then = links(replayed=REPLAYED), standing()
    words = "a trace plays on node1 -> node2"
    assert after(prover, monkeypatch, then).changed == words
    assert after(prover, monkeypatch, then, schedule=(EVENT,)).changed == words
    own = SimpleNamespace(playback=SimpleNamespace(pairs=REPLAYED))
    assert after(prover, monkeypatch, then, schedule=(EVENT, own)).changed == ""


@pytest.mark.parametrize(("changed", "told"), [("node1", ["node1"]), ("node2", [])])
def test_of_nodes_that_are_left_after_a_loss_changes_are_told_and_of_lost_ones_not(
    prover, monkeypatch, changed, told
):
    """Actor-learner runs go on without a node, over links of which bounds are reckoned."""
    parts = standing().nodes | {changed: dict.fromkeys(PARTS, "2")}
    found = after(prover, monkeypatch, (links(), Standing(parts, "")), alive=("node1",))
    assert found.lost == ""
    assert [words for words in found.changed.split("; ") if words] == [
        f"{words} ({node})" for words in PARTS.values() for node in told
    ]


def test_after_a_loss_only_the_engines_of_nodes_that_are_left_are_asked(monkeypatch):
    """A lost node's host may be gone, too."""

    def engine(name, node):
        containers = [SimpleNamespace(node=node, id=f"{name}/{node}")] if node else None
        return SimpleNamespace(
            containers=lambda _: containers or pytest.fail(f"{name} was asked"),
            host_configs=lambda of: {one.node: {"NanoCpus": 5} for one in of},
        )

    parts = [(engine("a", "node1"), ["node1"]), (engine("b", None), ["node2"])]
    engines = SimpleNamespace(parts=lambda _: parts)
    asked = []
    monkeypatch.setattr(
        prover_module, "inspect_cluster_links", lambda *args: asked.append(args) or (links(), {})
    )
    spec = SimpleNamespace(name="lab")
    _, now = Prover(engines, spec, "fleet", None).now(["node1"])
    assert asked == [("fleet", spec, ["node1"])]
    assert now.nodes.keys() == {"node1"} and now.nodes["node1"]["container"] == "a/node1"


def test_if_those_that_are_left_do_not_tell_it_is_not_known_whether_links_changed(
    prover, monkeypatch
):
    """The engine may have gone with a node; what the others tell of their links is kept."""

    def lost(*_):
        raise NodeError("node1 does not answer", {})

    there = links()
    monkeypatch.setattr(Prover, "now", lost)
    monkeypatch.setattr(verification, "read_cluster_links", lambda *_: there)
    told = links_after(prover, job(prover), standing(), ("node1",))
    words = "whether they stayed as they were is not known: node1 does not answer"
    assert (told.link_state, told.lost, told.changed) == (there, "", words)
    monkeypatch.setattr(verification, "read_cluster_links", lost)
    assert links_after(prover, job(prover), standing(), ("node1",)) == (None, "", words)


@pytest.mark.parametrize("values", [{"before": ""}, {"schedule": (EVENT,)}])
def test_changes_are_not_told_where_they_are_asked_for_or_nothing_is_known_before(
    prover, monkeypatch, values
):
    assert after(prover, monkeypatch, (links(), standing("2")), **values).changed == ""


def test_where_nodes_do_not_tell_links_do_not_count_as_kept(prover, monkeypatch):
    def lost(*_):
        raise NodeError("node2 does not answer", {})

    monkeypatch.setattr(verification, "read_cluster_links", lost)
    told = links_after(prover, job(prover), None, ("node1", "node2"))
    assert told.link_state is None
    words = "whether the links were in force to the end is not known: node2 does not answer"
    assert told.lost == words
    assert not told.stayed
