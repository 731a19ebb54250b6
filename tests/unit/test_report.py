"""Reports of runs, and of folders that are incomplete or damaged."""

import csv
import json
from dataclasses import replace

import pytest
from books import exchanges
from run_folders import BEGAN, change_summary, make_run, write_json, write_lines

from cluster.accounting.alternatives import Alternative
from cluster.base.errors import UsageError
from cluster.reporting import sentences
from cluster.reporting.compare import comparison_page
from cluster.reporting.lanes import lateness, slices, thinned
from cluster.reporting.markdown import page_markdown
from cluster.reporting.notes import cut_notes
from cluster.reporting.read_run import read_run
from cluster.reporting.run_data import CollectiveRow, WhatIf
from cluster.reporting.sections import sections
from cluster.reporting.tables import page_csv
from cluster.reporting.verdicts import verdicts
from cluster.reporting.write import run_page
from cluster.run.trials import Measured, Trial, trial_row

ORDER = [
    *(
        "seconds",
        "causes",
        "helped",
        "attribution",
        "timeline",
        "critical_link",
        "links",
        "learning",
    ),
    *("collectives", "reproduce"),
]


def keys(run):
    return [section.key for section in sections(run)]


def charts(run):
    return {chart.name: chart for section in sections(run) for chart in section.charts}


def answers(run):
    return {one.question: (one.state, one.answer) for one in verdicts(run)}


def test_a_normal_run_has_all_sections_in_their_order(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    assert keys(run) == ORDER
    assert all(section.sentence for section in sections(run))
    drawn = {
        "seconds",
        "helped",
        "attribution",
        "timeline",
        "links",
        "topology",
        "learning",
    }
    drawn |= {"critical_path", "critical_link"}
    assert charts(run).keys() == drawn
    assert answers(run) == {
        "run": ("good", "done in 21.3 s"),
        "links": ("good", "6 of 6 proved"),
        "host": ("good", "not the limit"),
        "bytes": ("good", "reconcile (1.001)"),
        "result": ("good", "test accuracy 0.7500, loss 0.4000"),
    }
    assert sentences.lead(run).startswith("3 nodes trained fashion-mnist with fedavg over mobile")


def test_links_that_were_only_looked_at_are_said_to_be(tmp_path):
    folder = make_run(tmp_path / "run")
    contract = json.loads((folder / "contract.json").read_text())
    (folder / "contract.json").write_text(json.dumps(contract | {"by": "look"}))
    assert answers(read_run(folder))["links"] == ("good", "6 of 6 proved, looked at")


def test_sentences_suffice(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    assert sentences.where_time_went(run) == (
        "Of 22.0 s on average, each rank spent 45% computing, 36% moving bytes and 9% starting."
    )
    assert sentences.would_have_helped(run) == (
        "node1->node2 at twice the rate would have saved 3.5 s (16% of the run): predicted, not tried."
    )
    assert (
        "once all ranks were there, most of it for the rates of links (50%)"
        in sentences.attributed(run.attribution)
    )
    assert "-6% is unexplained" in sentences.attributed(run.attribution)
    assert sentences.links_words(run).startswith("All 6 links are as asked")
    assert (
        "1.33 times the lower bound of gloo's algorithm on these links"
        in sentences.collectives_words(run.collectives)
    )
    assert (run.collectives[0].gloo_bound_s, run.collectives[0].links_bound_s) == (1.5, 0.9)
    varying = replace(run.collectives[0], kind="all_reduce", count=200, size_bytes=24_000)
    said = sentences.collectives_words([replace(varying, sizes_vary=True)])
    assert said.startswith("200 all_reduces of 24.0 kB on average (")


def test_collectives_whose_bounds_were_not_computed_are_counted(tmp_path):
    folder = make_run(tmp_path / "run")
    [row] = json.loads((folder / "summary.json").read_text())["collectives"]
    said = "To save time, the bounds of 19,000 collectives were not computed."
    for bounded in (1000, 20_000):
        change_summary(folder, collectives=[row | {"timed": 20_000, "bounded": bounded}])
        [found] = [one for one in sections(read_run(folder)) if one.key == "collectives"]
        assert (said in found.sentence) == (bounded < 20_000)


def test_the_waterfall_ends_at_what_was_measured(tmp_path):
    rows = charts(read_run(make_run(tmp_path / "run")))["attribution"].data["attribution"]
    for before, after in zip(rows, rows[1:-1], strict=False):
        assert after["from_s"] == before["to_s"]
    assert (rows[-1]["part"], rows[-1]["to_s"]) == ("measured", 9.0)
    assert [row["sign"] for row in rows][:2] == ["skew", "part"]


def test_what_was_tried_is_marked(tmp_path):
    folder = make_run(tmp_path / "run")
    rate = {"what": "rate", "carrier": "node1->node2", "saves_s": 3.5}
    change_summary(folder, what_if=[rate, {"what": "order", "carrier": "0,2,1", "saves_s": 1.0}])
    baseline, made = Measured("a", 90.0, 10.0), Measured("b", 99.0, 6.8)
    row = trial_row(Trial(Alternative("rate", "node1->node2", 3.5), [made]), [baseline])
    (folder / "whatif.json").write_text(json.dumps({"tried": [row, 7]}))
    run = read_run(folder)
    assert run.what_if[0] == WhatIf("rate", "node1->node2", 3.5, 3.2)
    assert sentences.would_have_helped(run).endswith("it was tried, and saved 3.2 s.")
    assert [row["label"] for row in charts(run)["helped"].data["helped"]] == [
        "−3.5 s, tried: 3.2 s",
        "−1.0 s, not tried",
    ]
    assert "shape" in json.dumps(charts(run)["helped"].wide)


def test_lanes_hold_what_was_measured_and_do_not_overlap(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    found = slices(run)
    for rank in range(3):
        own = [one for one in found if one.rank == rank]
        assert all(a.end_s <= b.start_s + 1e-9 for a, b in zip(own, own[1:], strict=False))
    seconds = sum(one.end_s - one.start_s for one in found if one.kind in ("waiting", "transfer"))
    assert seconds == pytest.approx(sum(m.ended_s - m.waited_from_s for m in run.moves), rel=1e-6)
    wanted = {"startup", "compute", "strategy", "waiting", "transfer", "eval"}
    assert {one.kind for one in found} >= wanted
    assert sum(one.times for one in lateness(run)) == 4
    fewer = thinned(found, 30)
    assert len(fewer) <= 30
    assert fewer[-1].end_s == pytest.approx(found[-1].end_s, rel=0.1)


def test_a_rank_for_which_no_other_waits_makes_none_wait(tmp_path):
    """The ranks compute behind their collectives, and wait for each for the last 10 ms."""
    folder = make_run(tmp_path / "run")
    assert "until it came, the first had waited" in sentences.timeline_words(read_run(folder))
    for path in (folder / "metrics").glob("*.collectives.jsonl"):
        lines = [json.loads(text) | {"waited_s": 0.01} for text in path.read_text().splitlines()]
        write_lines(path, lines)
    run = read_run(folder)
    assert [one.waited_s for one in lateness(run)] == pytest.approx([0.0] * len(lateness(run)))
    assert sentences.timeline_words(run) == (
        "At 4 collectives, no rank waited for another to come."
    )


@pytest.mark.parametrize("at", [0, -1e10, BEGAN - 40 * 86_400, BEGAN + 400 * 86_400])
def test_times_that_are_not_of_the_run_are_left_out_with_a_note(tmp_path, at):
    """One line of one rank would otherwise move the clock of the whole report."""
    folder = make_run(tmp_path / "run")
    whole = read_run(folder)
    path = folder / "metrics" / "node2.jsonl"
    odd = {"event": "hello", "rank": 1, "time": at}
    path.write_text(json.dumps(odd) + "\n" + path.read_text())
    with (folder / "links.csv").open("a") as file:
        file.write(f"{at},node1->node2,999999999,0,0,5\n")
    books = folder / "metrics" / "node3.collectives.jsonl"
    first, *rest = books.read_text().splitlines()
    books.write_text("\n".join([json.dumps(json.loads(first) | {"time": at}), *rest]) + "\n")
    for live in (None, {"time": BEGAN + 30, "elapsed_s": 40.0}):
        if live:
            write_json(folder / "live.json", live)
        run = read_run(folder)
        assert (run.began_at, keys(run)) == (whole.began_at, keys(whole))
        assert (run.steps, run.measures) == (whole.steps, whole.measures)
        looks = 0 if at < 0 else 1  # these are no looks at all
        [note] = run.notes
        assert "their times are not of this run: lines of node2 (1), collectives (1)" in note
        assert ("looks at links (1)" in note) == bool(looks)


def test_clocks_that_differ_are_noted(tmp_path):
    folder = make_run(tmp_path / "run", nodes=2)
    path = folder / "metrics" / "node2.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    write_lines(path, [one | {"time": one["time"] - 3600} for one in lines])
    assert any("the ranks started 3,600 s apart" in note for note in read_run(folder).notes)


def test_a_failed_run_shows_who_failed_by_itself_and_its_log(tmp_path):
    folder = make_run(tmp_path / "run", program=True)
    (folder / "logs" / "node2.log").write_text("".join(f"line {n}\n" for n in range(100)))
    change_summary(folder, status="failed", exit_codes={"node1": -15, "node2": 1, "node3": -15})
    run = read_run(folder)
    assert answers(run)["run"] == ("bad", "failed after 21.3 s: node2")
    assert [tail.rank for tail in run.tails] == ["node2"]
    assert run.tails[0].lines[-1] == "line 99" and len(run.tails[0].lines) == 25
    assert keys(run)[0] == "failed"  # nothing else is known about this run


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # The run did not need the lost node.
        ({"failure": "", "not_fetched": {"node2": "gone"}}, ("good", "done in 21.3 s")),
        (
            {"failure": "the schedule was not kept"},
            ("bad", "failed after 21.3 s: see the notes above"),
        ),
        # Runs of older versions do not record `failure`.
        ({"not_fetched": {"node2": "gone"}}, ("bad", "failed after 21.3 s: see the notes above")),
        ({"links_lost": "node2"}, ("bad", "failed after 21.3 s: see the notes above")),
    ],
)
def test_a_run_has_failed_if_its_launch_has(tmp_path, changes, said):
    folder = make_run(tmp_path / "run")
    change_summary(folder, **changes)
    run = read_run(folder)
    assert answers(run)["run"] == said
    assert changes.get("failure", "") in "".join(run.notes)


def test_a_run_without_an_end_has_the_last_test_and_says_why_no_seconds_are_known(tmp_path):
    folder = make_run(tmp_path / "run")
    known = {"seconds": {}, "tested": {}, "final_loss": None, "steps": None, "what_if": None}
    change_summary(folder, status="failed", failure="", critical_path=None, **known)
    run = read_run(folder)
    tests = [one for one in run.measures if one.name == "test_accuracy"]
    last = max(tests, key=lambda one: one.step)
    assert answers(run)["result"] == ("good", f"test accuracy {last.value:.4f} at step {last.step}")
    assert sentences.where_time_went(run) == "No rank came to its end, where it counts its seconds."
    assert "was not predicted" in sentences.would_have_helped(run)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"validation_loss": 2.5, "validation_bits": 3.60674}, "validation loss 2.5000"),
        ({"validation_bits": 3.60674}, "validation bits 3.6067"),
        ({"test_loss": 0.5}, "test loss 0.5000"),
        ({"test_loss": 0.5, "test_return": 21.25}, "test return 21.2"),
        ({"test_return": 21.25, "test_success": 0.75}, "test success 0.750"),
        ({"test_loss": 0.5, "test_accuracy": 0.9}, "test accuracy 0.9000"),
    ],
)
def test_a_run_without_an_end_has_its_last_test_whatever_was_tested(tmp_path, figures, said):
    """A training of language has no accuracy."""
    folder = make_run(tmp_path / "run")
    (folder / "summary.json").unlink()
    metrics = (folder / "metrics" / "node1.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, metrics) if line["event"] != "eval"]
    tests = [
        {"event": "eval", "rank": 0, "step": step, "time": BEGAN + step, "eval_s": 0.1} | tested
        for step, tested in ((5, dict.fromkeys(figures, 9.0)), (10, figures))
    ]
    write_lines(folder / "metrics" / "node1.jsonl", [*lines, *tests])
    assert answers(read_run(folder))["result"] == ("good", f"{said} at step 10")


def test_a_run_of_which_only_the_beginning_was_timed_says_so(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    assert read_run(folder).notes == []
    moves = len(read_run(folder).moves)
    row = json.loads((folder / "summary.json").read_text())["collectives"][0]
    change_summary(folder, collectives=[row | {"count": 30_000}])
    monkeypatch.setattr("cluster.reporting.read_run.MOST_MOVES", moves - 1)
    first, second = read_run(folder).notes
    assert first.startswith("of 30,000 collectives the first ")
    assert (
        "were timed one by one: attribution, causes, savings and the timeline are of these" in first
    )
    assert second == f"the timeline shows the first {moves - 1:,} of {moves:,} parts in collectives"


def notes_of_exchanges(collectives, counts):
    """The notes on exchanges of a run, of which ranks counted so many by size."""
    rows = [CollectiveRow("exchange", "train", size, n, *[None] * 4) for size, n in counts.items()]
    return cut_notes(rows, collectives, parts=0, most_parts=0)


def test_exchanges_of_several_sizes_are_not_said_to_lack_lines():
    """On a path, the rank in the middle sends twice as much as the others: no rank makes exchanges of both sizes."""
    path = [[1], [0, 2], [1]]
    assert notes_of_exchanges(exchanges(path), {100_000: 100, 200_000: 100}) == []
    (note,) = notes_of_exchanges(exchanges(path), {100_000: 30_000, 200_000: 30_000})
    assert note.startswith("of 30,000 collectives the first 100 were timed one by one")
    (note,) = notes_of_exchanges(exchanges(path), {100_000: 100, 200_000: 105})
    assert note.startswith("of 105 collectives 100 were timed one by one")
    assert notes_of_exchanges([], {100_000: 100}) == []


def test_ranks_that_make_unequally_many_exchanges_of_a_size_are_not_said_to_lack_lines():
    """As with fedavg on a share of the ranks: rank 0 makes most of one size, rank 1 of the other."""
    rounds = ((40, [[1], [0]]), (25, [[1, 2], [0]]), (15, [[1], [0, 2]]))
    made = [one for count, neighbours in rounds for one in exchanges(neighbours, count)]
    assert notes_of_exchanges(made, {100_000: 65, 200_000: 25}) == []  # 80 of each rank


@pytest.mark.parametrize("undecided", ["", "1 of 6 links undecided"])
def test_links_that_changed_during_the_run_are_not_called_proved(tmp_path, undecided):
    """Nor undecided, as they may have been before: that they changed is known."""
    folder = make_run(tmp_path / "run")
    change_summary(folder, links_changed="links were applied again (node2)", undecided=undecided)
    run = read_run(folder)
    assert answers(run)["links"] == ("bad", "changed during the run")
    assert run.notes == [
        "links were measured for the beginning of the run only; then: links were applied again (node2)"
    ]


def test_of_links_that_were_not_verified_a_trace_on_them_is_told_as_such(tmp_path):
    """Nobody measured them at the beginning of the run."""
    folder = make_run(tmp_path / "run")
    change_summary(folder, links_changed="a trace plays on node1 -> node2", verified=False)
    run = read_run(folder)
    assert answers(run)["links"] == ("bad", "changed during the run")
    assert run.notes == ["links were not as asked throughout: a trace plays on node1 -> node2"]
    assert run.proof.sentence == "Not as asked throughout: a trace plays on node1 -> node2."


def test_what_clocks_of_several_machines_decide_is_noted(tmp_path):
    folder = make_run(tmp_path / "run")
    config = (folder / "run.yml").read_text()
    (folder / "run.yml").write_text(f"{config}\nnode_hosts: {{node1: east, node2: west}}\n")
    assert any("nodes are on several machines" in note for note in read_run(folder).notes)


def test_runs_whose_links_were_not_counted_carried_no_known_bytes(tmp_path):
    folders = [make_run(tmp_path / name) for name in ("a", "b")]
    found = json.loads((folders[1] / "summary.json").read_text())["bytes"]
    change_summary(folders[1], bytes={**found, "total": None})
    [runs] = [
        one for one in comparison_page([read_run(f) for f in folders]).sections if one.key == "runs"
    ]
    assert "0 bytes" not in runs.sentence
    assert runs.sentence.endswith("loss 0.4000.")


def test_a_foreign_program_has_links_and_logs_alone(tmp_path):
    run = read_run(make_run(tmp_path / "run", program=True))
    assert keys(run) == ["seconds", "links", "reproduce"]
    assert answers(run)["result"] == ("unknown", "none recorded")
    assert "only our own training" in sections(run)[0].sentence


def test_a_number_that_no_float_can_be_is_none(tmp_path):
    folder = make_run(tmp_path / "run")
    contract = (folder / "contract.json").read_text().replace("4.75", "9" * 400)
    (folder / "contract.json").write_text(contract)
    change_summary(folder, wall_s=10**400, final_loss=-(10**400))
    run = read_run(folder)
    assert (run.wall_s, run.final_loss) == (None, None)
    assert page_markdown(run_page(run))


def test_one_step_is_a_run(tmp_path):
    run = read_run(make_run(tmp_path / "run", steps=1, every=1))
    assert "timeline" in keys(run)
    assert page_markdown(run_page(run))


@pytest.mark.parametrize(
    "left", [["run.yml"], ["links.json"], ["logs"], ["metrics"], ["summary.json"]]
)
def test_whatever_is_missing_of_a_folder_the_rest_is_shown(tmp_path, left):
    folder = make_run(tmp_path / "run")
    for name in ("run.yml", "links.json", "contract.json", "summary.json"):
        if name not in left:
            (folder / name).unlink()
    run = read_run(folder)
    assert page_markdown(run_page(run))
    assert page_csv(run_page(run))
    if "summary.json" not in left:
        assert answers(run)["run"] == ("bad", "no recorded end")
        assert [rank.name for rank in run.ranks] == ["node1", "node2", "node3"]


def test_a_refused_contract_is_named(tmp_path):
    folder = make_run(tmp_path / "run", program=True)
    contract = json.loads((folder / "contract.json").read_text())
    contract["links"][0]["broken"] = ["goodput_mbyte_s"]
    write_json(folder / "contract.json", contract | {"holds": False, "broken": True})
    (folder / "summary.json").unlink()
    run = read_run(folder)
    assert answers(run)["links"] == ("bad", "1 of 6 broken")
    assert sentences.links_words(run) == "Not as asked: node1->node2 (goodput_mbyte_s)."


@pytest.mark.parametrize("name", ["summary.json", "contract.json"])
def test_files_cut_short_are_named_and_the_rest_is_shown(tmp_path, name):
    folder = make_run(tmp_path / "run")
    text = (folder / name).read_text()
    (folder / name).write_text(text[: len(text) // 2])
    with (folder / "metrics" / "node2.jsonl").open("a") as file:
        file.write('{"event": "step", "ra')
    run = read_run(folder)
    assert [note for note in run.notes if note.startswith(f"{name} cannot be read")]
    assert "timeline" in keys(run)


def test_what_is_no_run_is_one_line(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="is no folder of a run"):
            read_run(folder)


def test_events_of_a_schedule_stand_across_the_lanes(tmp_path):
    events = [{"time": BEGAN + 3, "after_s": 3.0, "step": 5, "what": "at: 3s, link: node1:node2"}]
    run = read_run(make_run(tmp_path / "run", events=events))
    rows = charts(run)["timeline"].data["events"]
    assert rows == [
        {"at_s": 5.0, "what": "at: 3s, link: node1:node2"}
    ]  # the run began 2 s before BEGAN
    assert "The schedule acted 1 time." in sentences.timeline_words(run)


def test_returns_of_environments_are_drawn(tmp_path):
    folder = make_run(tmp_path / "run", steps=4)
    rollouts = [
        {"event": "rollout", "rank": 0, "time": BEGAN + n, "step": n, "env_steps": 64 * n}
        | {"episodes": 1, "episode_return": 10.0 * n, "episode_length": 10.0}
        for n in range(1, 5)
    ]
    with (folder / "metrics" / "node1.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in rollouts)
    chart = charts(read_run(folder))["learning"]
    assert [row["env_steps"] for row in chart.data["episode_return"]] == [64, 128, 192, 256]
    assert [row["value"] for row in chart.data["episode_return"]] == [10, 20, 30, 40]


def test_several_ranks_a_node_keep_their_names(tmp_path):
    folder = make_run(tmp_path / "run", program=True)
    change_summary(folder, exit_codes={"node1-0": 0, "node1-1": 0, "node2-0": 0, "node2-1": 0})
    run = read_run(folder)
    assert run.nodes == ["node1", "node2"]
    assert sentences.lead(run).startswith("2 nodes, 4 ranks, ran train.py over mobile links")


def test_csv_has_every_figure_of_every_table(tmp_path):
    text = page_csv(run_page(read_run(make_run(tmp_path / "run"))))
    rows = list(csv.DictReader(text.splitlines()))
    found = {(row["section"], row["row"], row["column"]): row["value"] for row in rows}
    assert found["seconds", "node2", "compute s"] == "10.0"
    assert found["collectives", "all_reduce", "mean ÷ gloo at best"] == "1.33"
    assert found["links", "node1->node3", "goodput MB/s"] == "4.75"


def test_metrics_without_end_are_read_as_far_as_they_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster.reporting.read_run.MOST_STEP_LINES", 30)
    monkeypatch.setattr("cluster.reporting.read_run.LEAST_STEP_LINES", 10)
    folder = make_run(tmp_path / "run", nodes=2, steps=50)
    run = read_run(folder)
    assert len(run.steps) == 2 * 14  # the first of 15 lines is the start
    assert "of node1, node2 the first 15 lines of metrics are shown" in run.notes


def test_lines_that_are_none_are_left_out(tmp_path):
    folder = make_run(tmp_path / "run")
    write_lines(folder / "events.jsonl", [3, "x", {"time": "soon"}, {"time": BEGAN, "what": ["x"]}])
    assert [one.what for one in read_run(folder).events] == [""]


def test_what_was_worse_than_its_peers_is_told_with_what_it_cost(tmp_path):
    folder = make_run(tmp_path)
    [found] = [one for one in sections(read_run(folder)) if one.key == "causes"]
    assert found.sentence.startswith(
        "node1->node2 takes 2.00 times as long per byte as the median link: that cost 3.0 s"
    )
    assert found.sentence.endswith("; 1 other cause cost less.")
    change_summary(folder, causes=[7, {"words": "no seconds"}])
    assert "causes" not in [one.key for one in sections(read_run(folder))]
