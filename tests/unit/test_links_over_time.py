"""What links carried over time: the log that a launch writes, and the report made from it."""

import csv
import json
import math
from dataclasses import replace

import pytest
import yaml
from live_runs import BEGAN, MBYTE, hear, running
from run_folders import BEGAN as REPORT_BEGAN
from run_folders import change_summary, make_run

from cluster.links.traces import Trace
from cluster.live import link_log
from cluster.live.link_log import LinkLog
from cluster.live.sample import parse_sample
from cluster.reporting import sentences
from cluster.reporting.charts.critical_link import critical_link, critical_link_chart, queue_ms
from cluster.reporting.charts.critical_path import path_chart
from cluster.reporting.charts.timeline import busy_links, link_rows, timeline_chart
from cluster.reporting.link_stretches import Look, carried_mb, joined, read_looks, stretches_of
from cluster.reporting.read_run import read_run
from cluster.reporting.run_data import LinkStretch
from cluster.reporting.sections import sections
from cluster.reporting.traced_rates import TracedRate, with_traces
from cluster.run.versions import own_commit, read_versions


def written(folder):
    with (folder / link_log.NAME).open(newline="") as file:
        return list(csv.DictReader(file))


def log_of(folder, sent, *, peer="node2"):
    """Write the log of a launch in which node1 reports, each second, the total sent to a peer; return the folder."""
    log, one = LinkLog(folder), running()
    for second, count in enumerate(sent):
        at = BEGAN + second
        one = hear(one, 0, at, links={peer: [count, 0, 0, 4.0]})
        facts = one.nodes["node1"]
        log.add("node1", facts.now, facts.carried)
    log.close()
    return folder


def test_a_link_that_does_nothing_leaves_its_first_look_alone(tmp_path):
    assert len(written(log_of(tmp_path, [7] * 50))) == 1


def test_what_is_written_tells_when_a_pause_ended(tmp_path):
    rows = written(log_of(tmp_path, [0, 0, 0, 0, MBYTE, 2 * MBYTE, 2 * MBYTE, 2 * MBYTE]))
    assert [float(row["time_s"]) - BEGAN for row in rows] == [0, 3, 4, 5]
    assert [int(row["bytes"]) for row in rows] == [0, 0, MBYTE, 2 * MBYTE]


def test_of_a_long_run_less_is_written_with_time(tmp_path, monkeypatch):
    monkeypatch.setattr(link_log, "MOST_ROWS", 10)
    rows = written(log_of(tmp_path, range(1, 400)))
    assert len(rows) < 80
    assert int(rows[-1]["bytes"]) > 250


def hostile_log(folder, say, *, step_s, lines):
    """Two nodes report for 60 s: node1 each second, node2 `lines` times, with times `step_s` after one another."""
    log = LinkLog(folder, 2, say)
    for second in range(60):
        carried = {"node2": (1000.0 * second, 0.0)}
        log.add("node1", sample_of("node2", BEGAN + second, 1000 * second), carried)
        for n in range(lines * second, lines * (second + 1)):
            log.add("node2", sample_of("node1", BEGAN + step_s * n, n), {"node1": (float(n), 0.0)})
    log.close()
    return written(folder)


def sample_of(peer, at, sent):
    text = json.dumps({"time": at, "links": {peer: [sent, 0, 0, 4.0]}})
    return parse_sample(text, [], [peer])


@pytest.mark.parametrize("step_s", [-1.0, 1e4])
def test_a_node_that_reports_too_much_thins_out_its_own_links_alone(tmp_path, monkeypatch, step_s):
    monkeypatch.setattr(link_log, "MOST_ROWS", 200)
    monkeypatch.setattr(link_log, "MOST_BYTES", 8000)
    told = []
    rows = hostile_log(tmp_path, told.append, step_s=step_s, lines=50)
    honest = [float(row["time_s"]) - BEGAN for row in rows if row["link"] == "node1->node2"]
    assert honest == list(range(60))
    assert len(rows) < 60 + 130
    is_used_up = step_s > 0  # looks that go back in time are none
    assert told == is_used_up * [
        "links.csv: the limit of node2 is reached; further rows of it are dropped"
    ]


def test_a_full_disk_ends_it_without_a_word(tmp_path):
    (tmp_path / link_log.NAME).mkdir()  # cannot be opened for writing
    log_of(tmp_path, range(5))


def test_nothing_told_of_links_leaves_no_file(tmp_path):
    log = LinkLog(tmp_path)
    log.flush()
    log.close()
    assert not list(tmp_path.iterdir())


def test_rates_over_time_add_up_to_what_was_carried(tmp_path):
    log_of(tmp_path, [0, 0, MBYTE, 3 * MBYTE, 3 * MBYTE, 3 * MBYTE, 4 * MBYTE])
    found = stretches_of(read_looks(tmp_path / "links.csv", {"node1->node2"}), BEGAN)
    some = found["node1->node2"]
    assert carried_mb(some) == pytest.approx(4.0)
    assert [round(one.mbyte_s, 3) for one in some] == [0, 1, 2, 0, 1]
    assert all(one.rate_mbyte_s == 4.0 for one in some)


def test_joined_stretches_carry_the_same():
    some = [LinkStretch(n, n + 1.0, n % 7, 5.0, 100.0 * n, 1.0) for n in range(1000)]
    few = joined(some, 100)
    assert len(few) <= 101
    assert carried_mb(few) == pytest.approx(carried_mb(some))
    assert sum(one.dropped for one in few) == 1000
    assert max(one.backlog_bytes for one in few) == 99_900


BAD_ROWS = [
    "x,node1->node2,1,2,3,4",
    "1,node1->node2",
    "nan,node1->node2,1,2,3,4",
    "1e300,node1->node2,1,2,3,4",
    "5,node1->node2,-1,2,3,4",
    "6,<script>,1,2,3,4",
    "\0\0\0",
]


def test_what_a_launch_noted_is_in_its_report(tmp_path):
    folder = make_run(tmp_path / "run")
    note = "links.csv: the limit of node2 is reached; further rows of it are dropped"
    (folder / "live.json").write_text(json.dumps({"notes": [note, 7], "time": "x"}))
    assert note in read_run(folder).notes


def test_hostile_rows_are_left_out(tmp_path):
    header = ",".join(link_log.HEADER)
    good = ["1,node1->node2,0,0,0,4", "2,node1->node2,1000000,0,0,4"]
    (tmp_path / "links.csv").write_text("\n".join([header, *good, *BAD_ROWS]))
    found = read_looks(tmp_path / "links.csv", {"node1->node2"})
    assert [look.at for look in found["node1->node2"]] == [1, 2]
    (tmp_path / "links.csv").write_bytes(b"\xff" * 1000)
    assert read_looks(tmp_path / "links.csv", {"node1->node2"}) == {}


def test_the_timeline_has_lanes_of_the_links_that_carried_most(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    assert busy_links(run) == ["node1->node2", "node2->node3"]
    rows = link_rows(run, busy_links(run), 1000)
    assert {row["shade"] for row in rows} == {0.67}  # 3 of 5 MB/s
    chart = timeline_chart(run)
    names = chart.wide["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert names == ["node1", "node2", "node3", "links:", "node1->node2", "node2->node3"]


def test_a_program_without_metrics_has_a_timeline_of_its_links(tmp_path):
    folder = make_run(tmp_path / "run")
    for path in (folder / "metrics").iterdir():
        path.unlink()
    change_summary(folder, critical_path=None)
    run = read_run(folder)
    assert run.began_at == REPORT_BEGAN
    assert {"timeline", "critical_link"} <= {section.key for section in sections(run)}


def test_of_many_links_few_have_lanes(tmp_path):
    run = read_run(make_run(tmp_path / "run", nodes=20))
    assert len(busy_links(run)) == 12


def test_the_critical_link_is_the_paths_where_it_was_seen_else_the_busiest(tmp_path):
    folder = make_run(tmp_path / "run")
    assert critical_link(read_run(folder)) == "node1->node2"  # node1->node3 was not sampled
    path = json.loads((folder / "summary.json").read_text())["critical_path"]
    links = {"node2->node3": path["links"]["node1->node3"]}
    change_summary(folder, critical_path=path | {"links": links})
    run = read_run(folder)
    assert critical_link(run) == "node2->node3"
    rows = critical_link_chart(run).data["carried"]
    assert {row["carried"] for row in rows} == {0.0, 3.0}
    assert {row["queue_ms"] for row in rows} == {0.0, 2.0}  # 10 kB at 5 MB/s
    words = sentences.critical_link_words(run, "node2->node3")
    assert "60% of its rate" in words and "its queue was 2 ms long at most" in words
    assert "dropped 1 packet." in words


def test_in_an_outage_nobody_knows_how_long_the_queue_takes():
    assert queue_ms(LinkStretch(0, 1, 0, 0.0, 1000, 0)) is None


def test_the_critical_path_adds_up(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    rows = path_chart(run).data["path"]
    assert sum(row["seconds"] for row in rows) == pytest.approx(19.0)
    assert [row["who"] for row in rows][0] == "node1" and rows[-1]["who"] == "not known"
    assert sentences.path_words(run) == "node1->node3 cost 6.0 s of the critical path's 19.0 s."
    (table,) = [t for s in sections(run) for t in s.tables if t.name == "critical_path"]
    assert sum(row[2] for row in table.rows) == pytest.approx(19.0)


def test_twice_as_fast_is_told_of_the_link_of_the_path(tmp_path):
    folder = make_run(tmp_path / "run")
    change_summary(folder, what_if=[{"what": "rate", "carrier": "node1->node3", "saves_s": 2.5}])
    assert sentences.path_words(read_run(folder)).endswith("; twice as fast would save 2.5 s.")


@pytest.mark.parametrize(
    "path", [None, [], {}, {"wall_s": -1}, {"wall_s": "x", "ranks": 3}, {"wall_s": 1, "links": {}}]
)
def test_a_critical_path_that_is_none_is_left_out(tmp_path, path):
    folder = make_run(tmp_path / "run")
    change_summary(folder, critical_path=path)
    run = read_run(folder)
    assert run.path is None and path_chart(run) is None and not sentences.path_words(run)


def traced(folder, **values):
    """A run whose link node1->node2 is under a trace from second 3 on, in rounds of 4 s."""
    steps = [[0.0, 8.0], [1.0, 0.0], [2.0, 4.0]]
    trace = {"event": "trace: x", "links": ["node1->node2"], "seconds": 4.0, "rate_mbyte_s": steps}
    config = yaml.safe_load((folder / "run.yml").read_text())
    (folder / "run.yml").write_text(yaml.safe_dump(config | {"traces": [trace | values]}))
    return read_run(folder)


TRACE_EVENTS = [
    {"time": REPORT_BEGAN + 3, "what": "trace: x"},
    {"time": REPORT_BEGAN + 11, "what": "over: trace: x"},
]


def test_under_a_trace_the_capacity_is_the_traces(tmp_path):
    run = traced(make_run(tmp_path / "run", events=TRACE_EVENTS))
    rates = [round(one.rate_mbyte_s, 6) for one in run.stretches["node1->node2"]]
    assert rates[3:11] == [8, 0, 4, 4, 8, 0, 4, 4]  # the run began 2 s before the first sample
    assert {*rates[:3], *rates[11:]} == {5.0}
    assert {one.rate_mbyte_s for one in run.stretches["node2->node3"]} == {5.0}


def test_of_a_long_pause_only_what_is_under_a_trace_is_cut_into_pieces():
    """Nodes write the times of looks: 1000 looks 2000 s apart would be two million pieces."""
    looks = [Look(BEGAN + 2000.0 * n, 1e3 * n, 0, n, 1.0) for n in range(1000)]
    some = stretches_of({"node1->node2": looks}, BEGAN)
    for start_s, end_s, most in ((500.0, 530.0, 1100), (500.0, math.inf, 7000)):
        links = frozenset(["node1->node2"])
        trace = TracedRate(links, start_s, end_s, 10.0, [0.0, 5.0], [0.0, 5.0, 20.0], [1.0, 3.0])
        found = with_traces(some, [trace])["node1->node2"]
        assert len(found) < most
        assert carried_mb(found) == pytest.approx(carried_mb(some["node1->node2"]))
        assert sum(one.dropped for one in found) == 999
        assert [one.end_s for one in found[:-1]] == [one.start_s for one in found[1:]]
        under = [one for one in found if start_s <= one.start_s < end_s]
        assert min(one.start_s for one in under) == start_s
        could_mb = sum(one.rate_mbyte_s * (one.end_s - one.start_s) for one in under)
        assert could_mb == pytest.approx(2.0 * (under[-1].end_s - start_s), rel=1e-3)


def behind_a_trace(seconds):
    """A link that is looked at twice, with 0.5 MB in its queue the second time; 8 MB/s, but for one second at 0.2."""
    looks = [Look(BEGAN, 0, 0, 0, 8.0), Look(BEGAN + seconds, 1e6, 500_000, 0, 8.0)]
    some = stretches_of({"node1->node2": looks}, BEGAN)
    moments, sums, rates = [0.0, 3.0, 4.0], [0.0, 24.0, 24.2, 24.2 + 8e3], [8.0, 0.2, 8.0]
    trace = TracedRate(frozenset(some), 0.0, math.inf, 1004.0, moments, sums, rates)
    return with_traces(some, [trace])


def test_under_a_trace_a_queue_is_known_only_when_it_was_looked_at():
    """0.5 MB at 8 MB/s are 62.5 ms; in the second at 0.2 MB/s nobody looked, and 2,500 ms never were."""
    (some,) = behind_a_trace(10.0).values()
    assert [round(one.rate_mbyte_s, 6) for one in some] == [8, 8, 8, 0.2, 8, 8, 8, 8, 8, 8]
    assert [queue_ms(one) for one in some] == [None] * 9 + [pytest.approx(62.5)]
    assert [queue_ms(one) for one in joined(some[:4], 2)] == [None, None]


def test_stretches_that_are_drawn_as_one_have_the_longest_queue_that_was_looked_at(
    tmp_path, monkeypatch
):
    """Not the longest of any of them divided by the mean rate of all."""
    run = replace(read_run(make_run(tmp_path / "run")), stretches=behind_a_trace(10.0))
    monkeypatch.setattr("cluster.reporting.charts.critical_link.MOST_DRAWN", 1)
    chart = critical_link_chart(run)
    assert {row["rate"] for row in chart.few["carried"]} == {7.22}
    assert {row["queue_ms"] for row in chart.few["carried"]} == {62.5}
    assert {row["queue_ms"] for row in chart.data["carried"]} == {None, 62.5}
    words = sentences.critical_link_words(run, "node1->node2")
    assert "its queue was 62 ms long at most" in words


@pytest.mark.parametrize(
    "values",
    [
        {"seconds": 0},
        {"seconds": 2.0},
        {"rate_mbyte_s": []},
        {"rate_mbyte_s": [[1.0, 2.0]]},
        {"rate_mbyte_s": [[0.0, -1.0]]},
        {"rate_mbyte_s": [["0", 1.0], 7, [0.0]]},
        {"event": 3},
        {"links": 7},
    ],
)
def test_a_trace_that_is_none_changes_nothing(tmp_path, values):
    run = traced(make_run(tmp_path / "run", events=TRACE_EVENTS), **values)
    assert {one.rate_mbyte_s for one in run.stretches["node1->node2"]} == {5.0}


def test_a_run_keeps_of_a_long_trace_means(monkeypatch):
    steps = tuple((float(n), float(n % 2)) for n in range(10))
    trace = Trace("x.csv", "", ("rate_mbyte_s",), steps, 10.0, repeats=False)
    assert len(trace.rates()["rate_mbyte_s"]) == 10
    monkeypatch.setattr("cluster.links.traces.MOST_RECORDED", 5)
    rows = trace.rates()["rate_mbyte_s"]
    assert rows == [[2.0 * n, 0.5] for n in range(5)]


def test_older_folders_have_a_dash_for_what_they_do_not_say(tmp_path):
    facts = read_run(make_run(tmp_path / "run", seen=False)).facts
    names = ("wire", "image id", "gradwire", "torch", "Python on the nodes")
    assert [facts[name] for name in names] == ["–"] * 5


def test_a_report_says_which_node_was_on_which_host(tmp_path):
    folder = make_run(tmp_path / "run")
    assert "on hosts" not in read_run(folder).facts
    with (folder / "run.yml").open("a") as config:
        config.write("node_hosts: {node1: west, node2: east, node3: west}\n")
    assert read_run(folder).facts["on hosts"] == "west: node1, node3; east: node2"


def test_versions_are_what_a_node_said_where_those_are_versions():
    assert read_versions(b'{"python": "3.13.5", "torch": "2.6.0+debian"}') == {
        "python": "3.13.5",
        "torch": "2.6.0+debian",
    }
    for said in (b"", b"[]", b'{"python": 3, "torch": "<script>"}', b"[" * 100_000):
        assert read_versions(said) == {"python": "", "torch": ""}
    assert own_commit() == "" or own_commit()[:7].isalnum()
