"""What a report claims: who failed, what was learnt, whether links held, and that nothing is left out unsaid."""

import json

import pytest
import yaml
from run_folders import (
    BEGAN,
    change_summary,
    link,
    make_run,
    write_json,
    write_lines,
    write_looks,
)

from cluster.reporting import read_run as read_run_module
from cluster.reporting import sentences
from cluster.reporting.charts.learning import learning_chart
from cluster.reporting.charts.seconds import seconds_chart
from cluster.reporting.charts.timeline import timeline_chart
from cluster.reporting.failures import lost_words
from cluster.reporting.lanes import slices
from cluster.reporting.markdown import page_markdown
from cluster.reporting.page import page_html
from cluster.reporting.read_run import read_run
from cluster.reporting.run_data import Attribution
from cluster.reporting.sections import sections
from cluster.reporting.tables import page_csv
from cluster.reporting.verdicts import verdicts
from cluster.reporting.write import run_page
from cluster.run.rank_placement import MOST_RANKS as MOST_RANKS_A_NODE
from cluster.schedule.schedule_file import MOST_FLAPS

NAMES = ["node1", "node2", "node3"]


def answer(folder, question):
    return next((v.state, v.answer) for v in verdicts(read_run(folder)) if v.question == question)


def sentence(folder, key):
    return next(one.sentence for one in sections(read_run(folder)) if one.key == key)


def failed_run(folder, nodes=3, **values):
    """Write a run in which every rank ended with 1; of no rank are seconds known."""
    make_run(folder, nodes=nodes, steps=10, seen=False)
    codes = {f"node{n + 1}": 1 for n in range(nodes)}
    change_summary(
        folder, **{"status": "failed", "exit_codes": codes, "seconds": {}, "failure": "", **values}
    )
    return folder


def test_the_root_cause_is_named_and_its_log_is_the_first(tmp_path):
    cause = {"rank": "node50", "words": "ended with exit code 1: ValueError: the real error"}
    folder = failed_run(tmp_path / "run", nodes=64, root_cause=cause)
    (folder / "logs" / "node50.log").write_text("ValueError: the real error\n")
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: node50 ended with exit code 1")
    run = read_run(folder)
    assert [tail.rank for tail in run.tails][:2] == ["node50", "node1"]
    assert run.tails[0].lines == ("ValueError: the real error",)
    assert sentence(folder, "failed") == (
        "node50 ended with exit code 1: ValueError: the real error: the root cause, of 64 ranks that failed; "
        "the ends of the logs of 6 of them:"
    )


def test_after_the_root_cause_come_the_logs_of_essential_ranks(tmp_path):
    cause = {"rank": "node4", "words": "stalled: it is stopped (T); ended by --stall-timeout"}
    codes = {"node1": 1, "node2": 1, "node3": 1, "node4": -15, "node5": -15}
    folder = failed_run(tmp_path / "run", nodes=5, root_cause=cause, exit_codes=codes)
    config = yaml.safe_load((folder / "run.yml").read_text())
    (folder / "run.yml").write_text(yaml.safe_dump(config | {"essential_ranks": [2]}))
    assert [tail.rank for tail in read_run(folder).tails] == ["node4", "node3", "node1", "node2"]
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: node4 stalled")


def test_a_stall_that_no_rank_is_known_to_have_caused_is_told(tmp_path):
    words = "stalled: nothing has moved for 60 s; ended by --stall-timeout"
    codes = dict.fromkeys(NAMES, -15)
    folder = failed_run(tmp_path / "run", root_cause={"rank": "", "words": words}, exit_codes=codes)
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: stalled")
    assert sentence(folder, "failed") == f"The run {words}; the ends of their logs:"


def test_without_a_known_root_cause_none_of_several_ranks_is_named(tmp_path):
    folder = failed_run(tmp_path / "run")
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: several ranks")
    said = sentence(folder, "failed")
    assert said.endswith(
        "node3 ended with exit code 1; which was the first is not known; the ends of their logs:"
    )
    change_summary(folder, root_cause=[7])
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: several ranks")


def test_a_rank_that_the_run_did_without_is_not_why_it_failed(tmp_path):
    lost = "the ranks are done, but links were lost: node2->node1"
    codes = {"node1": 0, "node2": 0, "node3": 1}
    folder = failed_run(
        *(tmp_path / "run",), root_cause=None, failure=lost, exit_codes=codes, status="done"
    )
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: see the notes above")
    assert sentence(folder, "failed") == (
        f"{lost}. The run went on without node3, which ended with exit code 1; the end of its log:"
    )


@pytest.mark.parametrize("cause", [{"rank": "node3", "words": "was lost"}, None])
def test_ranks_that_failed_are_not_said_to_be_done(tmp_path, cause):
    """What a lost node left cannot be fetched either; that is not why the run failed."""
    failure = "the ranks are done, but what they left could not all be fetched: node3"
    codes = {"node1": -15, "node2": -15, "node3": -1000}
    folder = failed_run(
        tmp_path / "run", root_cause=cause, failure=failure, exit_codes=codes, status="failed"
    )
    page = page_markdown(run_page(read_run(folder)))
    assert "the ranks are done" not in page and "went on without" not in page
    assert answer(folder, "run") == (
        *("bad", f"failed after 21.3 s: node3{' was lost' if cause else ''}"),
    )


def with_losses(folder, loss_of, ranks=NAMES):
    for name in ranks:
        path = folder / "metrics" / f"{name}.jsonl"
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        changed = [
            one | {"loss": loss_of(one["step"])} if one["event"] == "step" else one for one in lines
        ]
        write_lines(path, changed)
    return folder


def test_a_loss_that_became_nan_is_not_said_to_have_been_learnt(tmp_path):
    folder = with_losses(
        make_run(tmp_path / "run"), lambda n: 2.3 - 0.1 * n if n < 11 else float("nan")
    )
    change_summary(folder, final_loss=None, tested={"test_accuracy": 0.1})
    assert sentence(folder, "learning") == (
        "The training loss went from 2.200 to NaN, first at step 11; at the end test accuracy 0.1000."
    )
    assert answer(folder, "result") == (
        *("bad", "test accuracy 0.1000, loss NaN, first at step 11"),
    )
    run = read_run(folder)
    assert len(learning_chart(run).data["loss"]) == 10
    assert page_markdown(run_page(run))


def test_a_loss_that_was_never_a_number_is_told(tmp_path):
    folder = with_losses(make_run(tmp_path / "run"), lambda n: float("inf"))
    change_summary(folder, final_loss=None, tested={})
    assert sentence(folder, "learning") == "The training loss was infinite at every step."
    assert answer(folder, "result") == ("bad", "loss infinite, first at step 1")


def test_a_loss_that_was_nan_for_a_while_is_told_and_a_missing_one_is_none(tmp_path):
    folder = make_run(tmp_path / "run")
    with_losses(folder, lambda n: float("nan") if n == 5 else 3.0 - 0.1 * n, ["node2"])
    assert "; of a rank it was NaN meanwhile, at step 5" in sentence(folder, "learning")
    assert answer(folder, "result")[0] == "good"
    missing = with_losses(make_run(tmp_path / "missing"), lambda n: None)
    assert "NaN" not in sentences.learning_words(read_run(missing))


def changed_contract(folder, **values):
    path = folder / "contract.json"
    write_json(path, json.loads(path.read_text()) | values)
    return folder


def test_what_is_broken_besides_links_is_named(tmp_path):
    access = {"node": "node1", "asked_mbyte_s": 1.0, "measured_mbyte_s": 2.0, "holds": False}
    path = {"link": link("node1", "node3"), "via": ["node2"], "broken": ["rtt"], "undecided": []}
    fine = access | {"node": "node2", "holds": True}
    folder = changed_contract(
        *(make_run(tmp_path / "run"),),
        holds=False,
        broken=True,
        uplinks=[access, fine],
        downlinks=[access | {"undecided": True}],
        paths=[path],
    )
    assert answer(folder, "links") == ("bad", "node1 (uplink) and 1 more broken")
    said = sentence(folder, "links")
    assert said.startswith("Not as asked: node1 (uplink), node1->node3 over node2 (rtt). ")
    changed_contract(folder, broken=False, decided=False, uplinks=[], paths=[])
    assert answer(folder, "links") == ("unknown", "node1 (downlink) undecided")
    assert sentence(folder, "links").startswith(
        "The host was too busy to decide about node1 (downlink). "
    )


def test_a_contract_that_names_nothing_broken_is_quoted(tmp_path):
    folder = changed_contract(
        *(make_run(tmp_path / "run"),), broken=True, verdict="links changed while measured"
    )
    assert answer(folder, "links") == ("bad", "some of 6 broken")
    assert sentence(folder, "links").startswith("Not as asked: links changed while measured.")


def test_links_that_were_lost_or_changed_are_not_said_to_be_as_asked(tmp_path):
    folder = make_run(tmp_path / "run")
    change_summary(folder, links_changed="links were applied again (node2)")
    assert sentence(folder, "links").startswith(
        "As asked at the beginning of the run only; then: links were applied again (node2). "
    )
    change_summary(folder, links_lost="node2->node1", links_changed="")
    assert answer(folder, "links") == ("bad", "lost during the run")
    assert sentence(folder, "links").startswith("Not all in force at the end: node2->node1. ")
    (folder / "contract.json").unlink()
    assert answer(folder, "links") == ("bad", "lost during the run")


@pytest.mark.parametrize("cause", [{"rank": "node2", "words": "was lost"}, None])
def test_links_that_nodes_did_not_tell_of_at_the_end_are_not_said_to_be_lost(tmp_path, cause):
    """One story in the note, the strip and the section: nobody knows."""
    unknown = "the links were in force to the end is not known: node2 does not answer"
    begin = "" if cause else "the ranks are done, but "
    folder = make_run(tmp_path / "run")
    failure = f"{begin}{lost_words(f'whether {unknown}')}"
    status = "failed" if cause else "done"
    told = {"failure": failure, "root_cause": cause, "status": status}
    change_summary(folder, links_lost=f"whether {unknown}", links_changed="", **told)
    assert read_run(folder).notes == [f"{begin}whether {unknown}"]
    assert answer(folder, "links") == ("unknown", "not known at the end")
    assert sentence(folder, "links").startswith(f"Whether {unknown}. ")
    assert "lost:" not in page_markdown(run_page(read_run(folder)))


def test_links_of_which_a_contract_says_nothing_are_not_proved(tmp_path):
    folder = make_run(tmp_path / "run")
    rows = json.loads((folder / "contract.json").read_text())["links"]
    changed_contract(folder, links=rows[:4])
    assert answer(folder, "links") == ("unknown", "4 of 6 proved")
    assert sentence(folder, "links").startswith(
        "4 of 6 links are as asked; the others were not measured. "
    )
    changed_contract(folder, links=[])
    assert answer(folder, "links") == ("unknown", "not measured")
    assert "whether they are as asked was not measured" in sentence(folder, "links")
    (folder / "contract.json").write_text("{")
    assert answer(folder, "links") == ("unknown", "not known")
    assert sentence(folder, "links").startswith("The links were measured, but what was found ")


def test_of_large_clusters_all_links_ranks_and_actions_are_read():
    assert read_run_module.MOST_LINKS >= 199 * 198
    assert read_run_module.MOST_RANKS >= 199 * MOST_RANKS_A_NODE
    assert read_run_module.MOST_EVENTS >= 2 * MOST_FLAPS


def test_of_very_many_ranks_it_is_said_how_many_are_drawn(tmp_path):
    folder = make_run(tmp_path / "run", steps=1, seen=False)
    codes = {f"node{n}-{k}": 0 for n in range(1, 21) for k in range(64)}
    seconds = dict.fromkeys(codes, {"compute": 1.0, "total": 1.0})
    change_summary(folder, exit_codes=codes, seconds=seconds)
    run = read_run(folder)
    assert (len(run.ranks), run.notes) == (1280, [])
    assert sentences.lead(run).startswith("20 nodes, 1280 ranks, trained")
    chart = seconds_chart(run)
    assert len({row["rank"] for row in chart.data["seconds"]}) == 1000
    assert chart.caption.endswith(" Shown: the first 1,000 of 1,280 ranks.")


def test_what_is_beyond_a_limit_is_counted(tmp_path, monkeypatch):
    events = [{"time": BEGAN + n / 100, "what": f"e{n}"} for n in range(30)]
    folder = make_run(tmp_path / "run", events=events)
    monkeypatch.setattr("cluster.reporting.read_run.MOST_EVENTS", 20)
    monkeypatch.setattr("cluster.reporting.read_run.MOST_RANKS", 2)
    monkeypatch.setattr("cluster.reporting.read_run.MOST_LINKS", 4)
    assert read_run(folder).notes == [
        "of 3 ranks the first 2 are shown",
        "of 6 links the first 4 are shown",
        "of 30 actions of the schedule the first 20 are shown",
    ]
    assert answer(folder, "links") == ("good", "6 of 6 proved")  # all count


def test_lines_of_many_ranks_that_were_cut_are_one_note(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster.reporting.read_run.MOST_STEP_LINES", 30)
    monkeypatch.setattr("cluster.reporting.read_run.LEAST_STEP_LINES", 10)
    run = read_run(make_run(tmp_path / "run", nodes=8, steps=20, seen=False))
    assert run.notes == [
        "of node1, node2, node3, node4, node5 and 3 more ranks the first 10 lines of metrics are shown"
    ]


def test_a_long_table_is_whole_in_csv_and_counted_where_it_is_cut(tmp_path):
    events = [{"time": BEGAN + n / 100, "what": f"e{n}"} for n in range(1000)]
    run = read_run(make_run(tmp_path / "run", program=True, events=events))
    page = run_page(run)
    assert page_csv(page).count("timeline,events,") == 1000
    cut = "The first 200 of 1,000 rows; the .csv file beside this one has all."
    assert cut in page_html(page, {}, "x") and cut in page_markdown(page)
    assert "e199" in page_markdown(page) and "e200" not in page_markdown(page)
    assert "Dashed lines: the first 200 of 1,000 actions of the schedule." in (
        timeline_chart(read_run(looked_at(tmp_path / "run"))).caption
    )


def looked_at(folder):
    write_looks(folder, json.loads((folder / "links.json").read_text()), seconds=20, every=5)
    return folder


def test_of_a_program_that_leaves_no_times_none_are_claimed(tmp_path):
    folder = looked_at(make_run(tmp_path / "run", program=True))
    assert sentence(folder, "timeline") == (
        "What links carried, moment by moment; the program left no times of its own."
    )


def test_our_own_training_without_a_step_is_no_foreign_program(tmp_path):
    folder = make_run(tmp_path / "run", seen=False)
    for path in (folder / "metrics").iterdir():
        path.unlink()
    change_summary(folder, status="failed", seconds={}, steps=None, failure="")
    assert sentence(folder, "seconds").startswith("No rank came to its first step.")


def test_of_several_ranks_those_that_counted_are_told(tmp_path):
    folder = make_run(tmp_path / "run")
    seconds = json.loads((folder / "summary.json").read_text())["seconds"]
    change_summary(folder, seconds={"node1": seconds["node1"]})
    assert sentence(folder, "seconds").startswith("Of 22.0 s, node1, which alone counted, spent ")
    change_summary(folder, seconds={name: seconds[name] for name in NAMES[:2]})
    assert "each of the 2 ranks that counted spent" in sentence(folder, "seconds")
    one = make_run(tmp_path / "one", nodes=1)
    assert sentence(one, "seconds").startswith("Of 22.0 s, the rank spent ")


def test_loading_data_is_not_starting(tmp_path):
    folder = make_run(tmp_path / "run")
    seconds = {"startup": 2.0, "data": 30.0, "compute": 10.0, "total": 42.0}
    change_summary(folder, seconds=dict.fromkeys(NAMES, seconds))
    assert "71% loading data, 24% computing and 5% starting" in sentence(folder, "seconds")
    charts = {chart.name: chart for one in sections(read_run(folder)) for chart in one.charts}
    assert {"bucket": "data", "order": 1, "rank": "node1", "seconds": 30.0} in (
        charts["seconds"].data["seconds"]
    )
    assert [
        row["kind"] for row in charts["critical_path"].data["path"] if row["who"] == "node1"
    ] == (["compute", "eval", "data"])


def test_no_link_carries_more_than_its_rate(tmp_path):
    """It carried 5 of 10 MB/s for 8 s; within the next 8 s its rate fell to 1 MB/s, at an unknown time."""
    folder = make_run(tmp_path / "run")
    rows = [(0, 0, 10), (8, 40, 10), (16, 80, 1)]
    lines = [f"{BEGAN + at:.3f},node1->node2,{1_000_000 * mb},0,0,{r}" for at, mb, r in rows]
    header = "time_s,link,bytes,backlog,drops,rate_mbyte_s"
    (folder / "links.csv").write_text("\n".join([header, *lines]) + "\n")
    assert sentence(folder, "critical_link") == (
        "node1->node2 carried 80.0 MB: 50% of its rate in the 8.0 s in which it was used and its rate did not change."
    )


@pytest.mark.parametrize(("unexplained_s", "most"), [(1.0, True), (6.0, False)])
def test_most_is_more_than_half(unexplained_s, most):
    parts = {"skew": 1.0, "distance": 1.5, "bytes": 2.0, "algorithm": 0.5}
    said = sentences.attributed(Attribution(parts | {"unexplained": unexplained_s}))
    assert ("there, most of it for the rates of links" in said) == most
    assert ("there, of what is known most for the rates of links" in said) != most


def test_what_a_point_of_a_long_run_is_of_is_said_and_no_test_is_left_out(tmp_path):
    folder = make_run(tmp_path / "run", nodes=1, steps=600, every=600, seen=False)
    path = folder / "metrics" / "node1.jsonl"
    tests = [
        {"event": "eval", "rank": 0, "step": n, "time": BEGAN + n, "test_accuracy": n / 1000}
        for n in range(1, 600)
    ]
    write_lines(path, [json.loads(text) for text in path.read_text().splitlines()][:-2] + tests)
    chart = learning_chart(read_run(folder))
    assert len(chart.data["test_accuracy"]) == 599
    assert len(chart.few["test_accuracy"]) <= 241
    assert chart.few["test_accuracy"][-1]["value"] == 0.599
    assert chart.caption.endswith(
        " The line is the mean over ranks and 3 steps at a time, the band their lowest and highest; explored, over "
        "ranks."
    )
    short = learning_chart(read_run(make_run(tmp_path / "short")))
    assert short.caption.endswith(
        "The line is the mean over ranks, the band their lowest and highest."
    )


def test_seconds_below_zero_break_no_lane(tmp_path):
    folder = make_run(tmp_path / "run")
    path = folder / "metrics" / "node2.jsonl"
    odd = {"compute_s": -5.0, "strategy_s": -3.0, "comm_s": -1.0}
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    write_lines(path, [one | odd if one["event"] == "step" else one for one in lines])
    own = [one for one in slices(read_run(folder)) if one.rank == 1]
    assert all(one.start_s <= one.end_s for one in own)
    assert all(a.end_s <= b.start_s + 1e-9 for a, b in zip(own, own[1:], strict=False))


def test_what_a_learner_waited_is_drawn_as_waiting(tmp_path):
    """A learner and its actors make no collectives, and one of an earlier version did not say how long it waited."""
    folder = make_run(tmp_path / "run")
    for path in (folder / "metrics").glob("*.collectives.jsonl"):
        path.unlink()
    start = {"event": "start", "rank": 0, "time": BEGAN}
    step = {"event": "step", "rank": 0, "time": BEGAN + 10.0, "step": 1, "sent_bytes": 0}
    step |= {"compute_s": 1.0, "comm_s": 8.5}
    acted = {"event": "rollout", "time": BEGAN + 9.0, "step": 0, "env_steps": 64, "episodes": 2}
    for rank in (1, 2):
        lines = [one | {"rank": rank} for one in (start, acted)]
        write_lines(folder / "metrics" / f"node{rank + 1}.jsonl", lines)
    for waited, kinds in (({"waiting_s": 8.0}, ["transfer", "waiting"]), ({}, ["transfer"])):
        write_lines(folder / "metrics" / "node1.jsonl", [start, step | waited])
        run = read_run(folder)
        own = [one for one in slices(run) if one.rank == 0 and one.kind != "startup"]
        assert [one.kind for one in own] == ["compute", *kinds, "other"]
        assert ("A learner waits" in timeline_chart(run).caption) == ("waiting" in kinds)
        lasted_s = {one.kind: one.end_s - one.start_s for one in own}
        assert lasted_s["transfer"] == pytest.approx(8.5 - waited.get("waiting_s", 0.0))


def test_where_ranks_wait_for_others_need_not_be_slower(tmp_path):
    """A learner waits for experience, of which some may be under way."""
    folder = make_run(tmp_path / "run")
    seconds = {"compute": 15.0, "transfer": 5.0, "waiting": 80.0, "total": 100.0}
    change_summary(folder, seconds={"node1": seconds})
    said = sentences.where_time_went(read_run(folder))
    assert said.endswith("spent 80% waiting for other ranks, 15% computing and 5% moving bytes.")


@pytest.mark.parametrize("letter", ["\ufffe", "\uffff", "\U0001ffff"])
def test_letters_that_xml_lacks_are_escaped(tmp_path, letter):
    folder = make_run(tmp_path / "run")
    carrier = f"node1{letter}->node2"
    change_summary(folder, what_if=[{"what": "rate", "carrier": carrier, "saves_s": 3.5}])
    [change] = read_run(folder).what_if
    assert change.carrier == f"node1\\u{ord(letter):04x}->node2"


def test_names_of_columns_are_no_formulas(tmp_path):
    folder = make_run(tmp_path / "run")
    parts = {"distance": 2.0, "=HYPERLINK(1)": 1.0}
    change_summary(folder, attribution={"seconds": parts, "collectives": []})
    lines = [text for text in page_csv(run_page(read_run(folder))).splitlines() if "HYPER" in text]
    assert lines and not any(",=HYPER" in text for text in lines)


def test_what_else_failed_is_told_beside_the_root_cause(tmp_path):
    failure = "the schedule was not kept: node2: tc: no such qdisc"
    cause = {"rank": "node3", "words": "ended with exit code 1"}
    folder = failed_run(tmp_path / "run", root_cause=cause, failure=failure)
    assert failure in read_run(folder).notes
    assert answer(folder, "run") == ("bad", "failed after 21.3 s: node3 ended with exit code 1")
