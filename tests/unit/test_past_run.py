"""Run folders read back, launched again, and compared with other runs."""

import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from books import line
from past_runs import PROGRAM, write_run

import cluster.launch
from cluster.accounting.alternatives import Alternative
from cluster.accounting.summary import account
from cluster.base.console import Console
from cluster.base.errors import ClusterError, UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run import runner, verification
from cluster.run.experiment import Experiment
from cluster.run.launch_again import (
    experiment_again,
    program_again,
    refuse_other_cluster,
    request_again,
    resources_again,
    with_option,
)
from cluster.run.past_run import read_past_launch, read_past_run, same_links
from cluster.run.rank_exit import RankExit
from cluster.run.results import parse_max_results
from cluster.run.run_folder import last_events
from cluster.run.staging import Staging
from cluster.run.trials import (
    Measured,
    Trial,
    changed_plans,
    choose_trials,
    measure,
    trial_row,
    whatif_document,
)
from cluster.shaping.link_state import planned_link_state
from cluster.whatif import main
from protocol.node_plan import read_plan


@pytest.fixture
def run(tmp_path):
    """The folder of a run of three nodes, as a launch writes it; each all-reduce took one second."""
    return write_run(tmp_path / "20261121-101500-mobile-fedavg")


def test_what_a_launch_writes_can_be_read_and_launched_again(run):
    past = read_past_run(run)
    assert past.spec == ClusterSpec("lab", 3, 0)
    assert [place.name for place in past.places] == ["node1", "node2", "node3"]
    assert (past.took_s, past.source) == (62.0, "asked")
    assert len(past.recorded.collectives) == 5
    assert program_again(past) == PROGRAM
    experiment = experiment_again(past)
    assert experiment == Experiment(
        request_again(past), PROGRAM, rank_order="node1,node2,node3", max_results="10737418240b"
    )
    assert parse_max_results(experiment.max_results) == 10737418240
    again = with_option(program_again(past), "codec", "bf16")
    assert again.argv[-2:] == ("--set", "codec=bf16")
    assert again.config["strategy_options"] == {"H": 20, "codec": "bf16"}
    assert resources_again(past).cpus == {}


def test_of_an_order_of_ranks_metrics_are_read_by_rank(tmp_path):
    past = read_past_run(write_run(tmp_path / "run", order=("node1", "node3", "node2")))
    assert past.recorded.nodes == ["node1", "node3", "node2"]
    first = past.recorded.collectives[0]
    assert [p.to for p in first.parts] == [{2: 6_399_371}, {0: 6_399_371}, {1: 6_399_371}]
    assert past.recorded.network.routes[1, 0].carriers == ("node3->node1",)


def test_of_a_launch_no_collectives_need_be_known_and_no_links(run):
    shutil.rmtree(run / "metrics")
    (run / "links.json").write_text("[]")
    past = read_past_launch(run)
    assert (past.link_spec, past.links, past.nodes) == (None, (), ["node1", "node2", "node3"])
    assert experiment_again(past).program == PROGRAM


def test_another_cluster_than_the_runs_is_refused(run):
    past = read_past_launch(run)
    limits = past.config["limits"]
    refuse_other_cluster(past, past.spec, past.links, limits)
    wider = [past.links[0]._replace(rate_mbyte_s=99.0), *past.links[1:]]
    for spec, links, own, complaint in (
        (replace(past.spec, size=4), past.links, limits, "4 nodes of"),
        (past.spec, wider, limits, "other links"),
        (past.spec, past.links, {"node1": {"cpus": 0.5}}, "may use more, or less"),
    ):
        with pytest.raises(ClusterError, match=complaint):
            refuse_other_cluster(past, spec, links, own)


@pytest.mark.parametrize("how", ["-f", "-f=", "--file="])
def test_a_run_is_named_by_its_flag_in_any_form(run, how, capsys):
    """As -fexperiment.yml, which works; a second word is refused as with -f."""
    assert cluster.launch.main([f"{how}{run}", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiment"]["cluster"]["name"] == "lab"
    assert cluster.launch.main([f"{how}{run}", "--dry-run", "--steps=8"]) == 2
    assert "-f and --steps exclude each other" in capsys.readouterr().err


LAUNCH_REFUSES = {
    ("--profile", "wan"): "-f and --profile exclude each other",
    ("--steps=8",): "-f and --steps exclude each other",
    ("other.py", "lr=3"): "-f and other.py exclude each other",
    ("--", "train.py"): "-f and train.py exclude each other",
}


@pytest.mark.parametrize("words", LAUNCH_REFUSES, ids=" ".join)
def test_with_a_runs_file_nothing_else_may_decide_what_is_run(run, words, capsys):
    assert cluster.launch.main(["-f", str(run / "run.yml"), *words]) == 2
    assert LAUNCH_REFUSES[words] in capsys.readouterr().err


@pytest.mark.parametrize("which", ["run.yml", "."])
def test_a_dry_run_of_a_runs_file_is_its_plan(run, which, capsys):
    assert cluster.launch.main(["-f", str(run / which), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    config = yaml.safe_load((run / "run.yml").read_text())
    assert plan["argv"] == config["program"]["argv"]
    assert plan["collective_timeout_s"] == config["collective_timeout_s"]
    rows = json.loads((run / "links.json").read_text())
    state = planned_link_state({name: read_plan(one) for name, one in plan["plans"].items()})
    assert [link._asdict() for link in state.links] == rows


def test_no_run_is_refused_in_one_line(tmp_path, capsys):
    assert cluster.launch.main(["-f", str(tmp_path / "run.yml")]) == 2
    assert "there is no run.yml in it" in capsys.readouterr().err


def test_limits_come_back_as_they_were(tmp_path):
    limits = {"node3": {"cpus": 0.5, "memory_bytes": 2**30}}
    asked = resources_again(read_past_run(write_run(tmp_path / "run", limits=limits)))
    assert asked.limits(["node3"], {})["node3"].document() == limits["node3"]


def edit(folder, **values):
    path = folder / "run.yml"
    config = yaml.safe_load(path.read_text()) | values
    path.write_text(yaml.safe_dump({k: v for k, v in config.items() if v != "gone"}))


BAD = {
    "no folder": (lambda run: (run / "run.yml").unlink(), "no run.yml in it"),
    "no yaml": (lambda run: (run / "run.yml").write_text("a: [1"), "not YAML"),
    "no mapping": (lambda run: (run / "run.yml").write_text("- 1"), "is no mapping"),
    "no cluster": (lambda run: edit(run, cluster=3), "cluster is 3"),
    "nodes": (
        lambda run: edit(run, cluster={"name": "x", "nodes": "3", "slot": 0}),
        "nodes is '3'",
    ),
    "ranks": (lambda run: edit(run, nproc_per_node=None), "nproc_per_node is None"),
    "order": (lambda run: edit(run, rank_order=["node2"]), "does not name each of 3"),
    "order of what": (lambda run: edit(run, rank_order=7), "rank_order is 7"),
    "schedule": (lambda run: edit(run, schedule=["at: 1s"]), "a schedule changed links"),
    "shaping": (lambda run: edit(run, shaping={"profile": 1}), "run.yml is damaged"),
    "no shaping": (lambda run: edit(run, shaping="gone"), "run.yml is damaged: shaping is"),
    "no links": (lambda run: (run / "links.json").unlink(), "cannot read"),
    "links cut": (lambda run: (run / "links.json").write_text("[{"), "cut short"),
    "links of what": (
        lambda run: (run / "links.json").write_text('[{"src": 1}]'),
        "links.json is damaged",
    ),
    "unshaped": (lambda run: (run / "links.json").write_text("[]"), "were not shaped"),
    "contract": (
        lambda run: (run / "contract.json").write_text('{"links": [7]}'),
        "contract.json is damaged: its content is not what a run writes",
    ),
    "no metrics": (
        lambda run: (run / "metrics/node2.collectives.jsonl").unlink(),
        "no record of coll",
    ),
    "links changed": (
        lambda run: (run / "summary.json").write_text('{"links_changed": "applied\\nagain"}'),
        "its links changed while it ran",
    ),
    "links lost": (
        lambda run: (run / "summary.json").write_text('{"links_lost": "of node2"}'),
        "its links are not known to have lasted until it ended: 'of node2'",
    ),
    "summary": (
        lambda run: (run / "summary.json").write_text("[7]"),
        "summary.json is damaged: its content is not what a run writes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_folder_that_is_damaged_is_refused_in_one_line(run, case, capsys):
    spoil, complaint = BAD[case]
    spoil(run)
    with pytest.raises(UsageError, match=complaint) as refused:
        read_past_run(run)
    assert "\n" not in refused.value.message
    assert main([str(run)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_run_whose_links_stayed_can_be_read(run):
    (run / "summary.json").write_text('{"links_changed": "", "links_lost": ""}')
    assert read_past_run(run).source == "asked"


def test_infinite_and_absurd_values_of_links_are_refused(run):
    rows = json.loads((run / "links.json").read_text())
    for value in (math.inf, -1, 1e300, True, "1", None):
        (run / "links.json").write_text(json.dumps([rows[0] | {"delay_ms": value}, *rows[1:]]))
        with pytest.raises(UsageError, match="links.json is damaged"):
            read_past_run(run)


def test_ranks_that_contradict_one_another_are_refused_in_one_line(run, capsys):
    """Each line has valid types, but together they are no ring."""
    for to in ({}, {"0": 5}, {"7": 5}):
        lines = [line("all_reduce", to, at=110.0, size=10)] * 3
        path = run / "metrics" / "node2.collectives.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
        assert main([str(run)]) in (0, 2)
        said = capsys.readouterr().err
        assert "bug" not in said


def test_an_older_run_is_predicted_and_not_tried(run, capsys):
    edit(run, program={"argv": ["python3"], "folder": ""}, rank_order="gone")
    assert main([str(run)]) == 0
    assert main([str(run), "--try", "1"]) == 2
    assert "an older gradwire" in capsys.readouterr().err
    assert not (run / "whatif.json").exists()


def test_what_a_run_sent_must_still_be_there(run):
    edit(run, program=said(folder="/nonexistent/job"))
    with pytest.raises(UsageError, match="/nonexistent/job, which this run sent to its nodes"):
        program_again(read_past_run(run))
    edit(run, program=said(order="/tmp/order"))
    with pytest.raises(UsageError, match=r"Trainer\.fit"):
        program_again(read_past_run(run))
    edit(run, program=said(argv="train.py"))
    with pytest.raises(UsageError, match="program is"):
        program_again(read_past_run(run))


def said(**values):
    return {"name": "job", "argv": ["python3"], "folder": "", "resume": "", "order": ""} | values


def test_numbers_that_cannot_be_are_refused(run, capsys):
    assert main([str(run), "--try", "-1"]) == 2
    assert main([str(run), "--try", "1", "--repeat", "0"]) == 2
    assert "--repeat 0" in capsys.readouterr().err


def test_the_table_and_the_document(run, capsys):
    assert main([str(run)]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[0] == "CHANGE"
    assert "no slow start after pauses" not in table or "recreated" in table
    assert main([str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == run.name
    assert document["took_s"] == 62.0
    assert document["tried"] == []
    assert {"what", "of", "saves_s", "can_be_tried", "note"} == document["changes"][0].keys()


# Other profiles.


def test_a_run_is_predicted_over_the_links_of_other_profiles(run, capsys):
    assert main([str(run), "--profile", "poor,cross-continental", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    poor, far = document["profiles"]
    assert document["changes"] == []
    assert (poor["profile"], poor["note"]) == ("poor", "")
    assert poor["took_s"] == pytest.approx(62.0 + poor["longer_s"], abs=1e-3)
    assert poor["longer_s"] > far["longer_s"]
    assert "lost packets" in far["note"]
    assert main([str(run), "--profile", "poor"]) == 0
    head, was, there = capsys.readouterr().out.splitlines()
    assert head.split() == ["PROFILE", "RUN", "s", "TIMES", "NOTE"]
    assert was.split()[:3] == ["mobile", "62.00", "1.00"]
    assert there.split()[0] == "poor"


def test_a_profile_from_the_environment_is_none_beside_try(run, capsys, monkeypatch):
    monkeypatch.setenv("GRADWIRE_PROFILE", "poor")
    assert main([str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"]
    assert main([str(run), "--try", "0", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["profiles"]
    assert main([str(run), "--try", "1", "--profile", "poor"]) == 2


def test_a_run_of_which_a_rank_has_no_end_is_not_predicted(run, capsys):
    for path in run.glob("metrics/node2.jsonl"):
        path.write_text(path.read_text().splitlines()[0] + "\n")
    assert main([str(run), "--profile", "poor", "--json"]) == 0
    [poor] = json.loads(capsys.readouterr().out)["profiles"]
    assert (poor["took_s"], poor["longer_s"]) == (None, None)
    assert poor["note"] == "not predicted: a rank recorded no end"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--profile", "pour"], "did you mean 'poor'"),
        (["--profile", "poor", "--try", "1"], "leave one of them out"),
        (["--profile", ""], "--profile is empty"),
    ],
    ids=" ".join,
)
def test_profiles_that_tell_nothing_are_refused(run, words, complaint, capsys):
    code = main([str(run), *words])
    assert (code, complaint in capsys.readouterr().err) == (2, True)


# Trials.


def plans(topology="full", profile="mobile"):
    nodes = ClusterSpec(size=3).nodes
    return link_plans(nodes, make_link_spec(profile, topology, 1, "nfqueue"))


def alternative(what, of, saves_s=1.0, can_be_tried=True):
    return Alternative(what, of, saves_s, "", can_be_tried)


def link_in(some_plans, node, src, dst):
    return next(link for link in some_plans[node].links if link.ends == (src, dst))


@pytest.mark.parametrize(
    ("what", "field", "factor"),
    [("rate", "rate_mbyte_s", 2), ("delay", "delay_ms", 0.5), ("loss", "loss_pct", 0)],
)
def test_one_link_changes_at_both_ends_and_nothing_else(what, field, factor):
    before = plans()
    after = changed_plans(before, alternative(what, "node2->node1"))
    assert after.keys() == {"node1", "node2"}
    for node in after:
        old, new = (link_in(p, node, "node2", "node1") for p in (before, after))
        assert new == old._replace(**{field: getattr(old, field) * factor})
        others = [
            [link for link in p[node].links if link.ends != ("node2", "node1")]
            for p in (before, after)
        ]
        assert others[0] == others[1]
        assert before[node]._replace(links=[]) == after[node]._replace(links=[])
    assert before == plans()


def test_an_uplink_changes_on_its_node_alone():
    before = plans()
    before["node3"] = before["node3"]._replace(uplink_mbyte_s=2.0)
    after = changed_plans(before, alternative("rate", "node3 uplink"))
    assert after == {"node3": before["node3"]._replace(uplink_mbyte_s=4.0)}
    assert changed_plans(before, alternative("rank_order", "node1,node3,node2")) == {}


def test_links_are_held_against_those_of_the_run_but_for_the_wire():
    state = planned_link_state(plans())
    other = [link._replace(wire="netem") for link in reversed(state.links)]
    assert same_links(state.links, other)
    assert not same_links(state.links, [other[0]._replace(delay_ms=1.0), *other[1:]])
    assert not same_links(state.links, other[1:])


def test_the_first_that_can_be_tried_are():
    changes = [
        alternative("window", "all links", 9.0, can_be_tried=False),
        alternative("rate", "node2->node1", 5.0),
        alternative("loss", "node2->node1", None),
    ]
    assert [trial.change.what for trial in choose_trials(changes, 5)] == ["rate", "loss"]
    assert [trial.change.what for trial in choose_trials(changes, 1)] == ["rate"]
    assert choose_trials(changes, 0) == []


def test_achieved_is_against_the_runs_beside_it(run):
    baselines = [Measured("a", 50.0, 20.0), Measured("b", 54.0, 22.0), Measured("c", 99.0, 99.0)]
    trial = Trial(
        alternative("rate", "node2->node1", 5.0),
        [Measured("d", 46.0, 16.0), Measured("e", 48.0, 16.0)],
    )
    row = trial_row(trial, baselines)  # the third round was interrupted
    assert row["predicted_s"] == 5.0
    assert row["achieved_s"] == pytest.approx(5.0)
    assert row["achieved_collectives_s"] == pytest.approx(5.0)
    assert [one["folder"] for one in row["baselines"]] == ["a", "b"]
    assert [one["folder"] for one in row["runs"]] == ["d", "e"]
    past = read_past_run(run)
    document = whatif_document(past, [trial.change], [trial, Trial(trial.change)], baselines)
    assert len(document["tried"]) == 1
    json.dumps(document, allow_nan=False)


def test_a_run_is_measured_from_its_first_start_to_its_last_end(run):
    measured = measure(run, ["node1", "node2", "node3"])
    assert (measured.seconds, measured.collectives_s) == (62.0, pytest.approx(5.0))
    assert measure(run, ["node1", "node9"]) is None


def test_what_it_is_told_of_links_is_as_the_run_folder_has_it(run):
    rows = json.loads((run / "links.json").read_text())
    assert [link._asdict() for link in read_past_run(run).links] == rows


@pytest.mark.parametrize(("tcp", "restarts"), [("cubic", True), ("bbr", False)])
def test_connections_that_were_idle_restart_with_slow_start_but_not_bbrs(run, tcp, restarts):
    """Between the five all-reduces, nothing was sent for nine seconds."""
    config = yaml.safe_load((run / "run.yml").read_text())
    config["shaping"]["tcp"] = tcp
    (run / "run.yml").write_text(yaml.safe_dump(config))
    assert read_past_run(run).recorded.slow_start is restarts
    assert (accounts_of(run, tcp=tcp)["attribution"]["seconds"]["window"] > 0) is restarts


def accounts_of(folder, *, changing=False, tcp="cubic"):
    names = ["node1", "node2", "node3"]
    told = {name: last_events(folder, name) for name in names}
    state = replace(planned_link_state(plans()), tcp=tcp)
    return account(folder, told, names, [], state, {}, None, changing=changing, throttled_s={})


def test_the_summary_has_the_critical_path_of_a_run_folder_and_none_where_it_cannot_be(run):
    """Five all-reduces of one second; the first began at 100 s, and the last rank ended at 162 s."""
    book(run, 5)
    path = accounts_of(run)["critical_path"]
    assert path["wall_s"] == 62.0
    assert path["collectives"] == path["replayed"] == 5
    carried = sum(link["seconds"] for link in path["links"].values())
    alone = sum(s for own in path["ranks"].values() for s in own.values())
    assert carried + path["not_known_s"] == pytest.approx(5.0, abs=1e-4)
    assert carried + path["not_known_s"] + alone == pytest.approx(62.0, abs=1e-4)
    assert accounts_of(run, changing=True)["critical_path"] is None
    book(run, 6)  # one has no line in the ledger
    assert accounts_of(run)["critical_path"] is None


@pytest.mark.parametrize("lost", [["node2"], []])
def test_of_links_that_were_lost_on_the_way_no_time_is_explained(run, monkeypatch, lost):
    """Their figures would be those of the beginning, and the later part of the run had other links, or none."""
    book(run, 5)
    past, before = read_past_launch(run), planned_link_state(plans())
    then = {node: plan for node, plan in before.plans.items() if node not in lost}
    after = replace(before, plans=then)
    monkeypatch.setattr(verification, "read_cluster_links", lambda *_: after)
    fleet = SimpleNamespace(nodes=past.spec.nodes, hosts={})
    job = SimpleNamespace(spec=past.spec, link_state=before, places=past.places, schedule=())
    staging = Staging([RankExit(place, 0, 1.0) for place in past.places])
    prover = SimpleNamespace(fleet=fleet)
    summary = runner._collect(prover, job, run, staging, 62.0, None, Console())
    assert summary["links_lost"] == ("those of node2 are not in force any more" if lost else "")
    assert summary["bounds"] == (None if lost else "asked")
    for part in ("attribution", "what_if"):
        assert (summary[part] is None) is bool(lost)
    assert (summary["collectives"][0]["gloo_bound_s"] is None) is bool(lost)


def book(folder, count):
    """Set the number of collectives that each rank reports in its end line."""
    one = {"kind": "all_reduce", "purpose": "train", "bytes": 4_799_528, "count": count}
    booked = [one | {"waited_s": 5.0, "to": {}}]
    for path in folder.glob("metrics/node?.jsonl"):
        start, end = map(json.loads, path.read_text().splitlines())
        rows = [start, end | {"collectives": booked}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("said", "again"), [("null", None), ("0.0", 0.0), ("9.0", 9.0)])
def test_when_it_counts_as_stalled_is_as_it_was(run, said, again):
    path = run / "run.yml"
    path.write_text(path.read_text().replace("stall_timeout_s: null", f"stall_timeout_s: {said}"))
    assert experiment_again(read_past_launch(run)).stall_timeout_s == again
