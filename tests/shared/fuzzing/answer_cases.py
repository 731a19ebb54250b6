"""Hostile answers of nodes, given to the functions of the host that read them."""

import io
import json
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from hypothesis import strategies as st
from live_runs import BEGAN, running, under_way
from live_runs import line as telemetry_line

from cluster.accounting.metrics import read_parts
from cluster.accounting.summary import account
from cluster.base.console import Console, LinePrinter
from cluster.base.errors import ClusterError
from cluster.base.files import last_lines
from cluster.base.json_file import json_text
from cluster.base.line_splitter import split_lines
from cluster.base.stdout import visible
from cluster.doctor import _everywhere, _torch
from cluster.lifecycle.provision import first_report
from cluster.links.traces import Playback, Trace
from cluster.live.describe import describe, remember
from cluster.live.link_log import LinkLog
from cluster.live.news import Measured
from cluster.live.sample import parse_sample
from cluster.live.screen import screen_text
from cluster.live.state import parse_state, to_json
from cluster.live.telemetry import bounded
from cluster.live.tracker import update
from cluster.run.checkpoints import deal_checkpoints
from cluster.run.rank_exit import read_report
from cluster.run.rank_output import copy_lines
from cluster.run.rank_placement import place_ranks
from cluster.run.results import Fetch, fetch_results
from cluster.run.root_cause import raise_failure
from cluster.run.run_folder import last_events, sort_results
from cluster.run.stall import find_stall, has_moved
from cluster.run.stall_watcher import _read_states
from cluster.run.versions import read_versions
from cluster.shaping.host_load import compare_readings
from cluster.shaping.link_state import read_link_state, sent_bytes, settings_document
from cluster.shaping.trace_player import TracePlayer
from fuzzing import probe_answers
from fuzzing.archives import archives
from fuzzing.documents import example
from fuzzing.fake_nodes import NAMES, SPEC, FakeFleet, PatientFleet, one_odd
from fuzzing.mutations import answers, damaged, line_files
from fuzzing.probe_answers import PLANS, SHOWN, link_state
from fuzzing.sandbox import said_of
from fuzzing.yaml_cases import good_run, read_again, write_folder
from protocol.collectives import CollectiveLine
from protocol.link_report import LinkReport
from protocol.metrics import NAMES as EVENT_NAMES
from protocol.node_check import NodeCheck
from protocol.rank import RankReport
from protocol.telemetry import RankState

PLACES = place_ranks(NAMES)
RIDE = Trace("ride.csv", "", ("delay_ms",), ((0.0, 1.0), (1.0, 2.0)), 2.0, repeats=False)
PLAYBACKS = {"0": Playback(RIDE, (("node1", "node2"),), loops=False)}
READY = b'{"ready": true}\n'
REPLAYED = READY + b'{"ended": "0", "changes": 2, "late": 0, "worst_ms": 0.5}\n'


def expected(action):
    """Wrap an action that may raise our own errors, each of which must be one clear line."""

    def call(place, *drawn):
        try:
            action(place, *drawn)
        except ClusterError as error:
            place.count(said_of(error))
        else:
            place.count("taken")

    return call


@expected
def shown(place, data):
    """`node.wire show`: the links in force, the host's load."""
    good = {node: json.dumps(said).encode() for node, said in SHOWN.items()}
    before, after = link_state(), read_link_state(FakeFleet(good | {"node2": data}))
    load = compare_readings(before.shown, after.shown)
    json_text([load.document(), settings_document(after), sent_bytes(before, after), after.notes])
    json_text([link._asdict() for link in after.links] + [after.profile, after.wire, after.seed])


@expected
def report(place, data):
    first_report(FakeFleetOfOne(data), "node2", PLANS["node2"])


class FakeFleetOfOne(FakeFleet):
    """A fleet whose nodes all give the same answer."""

    def __init__(self, data):
        super().__init__(dict.fromkeys(NAMES, data))

    def run_on(self, node, argv, stdin=b"", patience_s=0.0):
        return self.run(argv, nodes=[node])[node]


@expected
def node_check(place, data):
    """The nodes' answers to the doctor."""
    good = json.dumps(example(NodeCheck)).encode()
    reports = FakeFleet(one_odd(good, data)).run_read(NodeCheck, ["python3"])
    _everywhere("names", "", {node: one.names for node, one in reports.items()}, "")
    _torch(reports)
    json_text([one.gpus for one in reports.values()])


@expected
def probes(place, twist):
    table = io.StringIO()
    document = probe_answers.measure(twist, table)
    assert len(json_text(document)) + len(table.getvalue()) < 200_000


@expected
def traces(place, data):
    """`node.wire replay`."""
    said = {"node1": REPLAYED, "node2": data, "node3": READY}
    with (
        patch("cluster.shaping.trace_player.ANSWER_TIMEOUT_S", 0.3),
        TracePlayer(PatientFleet(said), PLAYBACKS) as player,
    ):
        player.begin("0")
        json_text([one.record() for one in player.ended()])


@expected
def telemetry(place, data):
    """The live view: state document, screen, links.csv."""
    tracker, log = under_way(2), LinkLog(place.work)
    peers = [name for name in NAMES if name != "node2"]
    at = BEGAN + 3
    for line in split_lines(bounded([data])):
        if sample := parse_sample(line, [1], peers):
            at += 1.0
            tracker = remember(update(tracker, Measured("node2", sample), at), at)
            log.add("node2", sample, tracker.nodes["node2"].carried)
    log.close()
    see(describe(tracker, [], at))


def see(state):
    """Render a state document in every form."""
    text = to_json(state)
    assert parse_state(text) is not None and len(text) < 200_000
    shown_text = screen_text(state, 80, 24)
    assert all(line.isprintable() and len(line) <= 80 for line in shown_text.splitlines())


@expected
def state_document(place, data):
    """live.json, which may be in a run folder from someone else."""
    if state := parse_state(data):
        screen_text(state, 80, 24)


@expected
def rank_report(place, stderr, exit_code):
    """The last line of `node.rank`."""
    (place.work / "logs").mkdir()
    (place.work / "logs" / "node2.log").write_bytes(stderr)
    end = read_report(PLACES[1], exit_code, stderr.decode(errors="replace"))
    others = [
        read_report(one, 0, '{"exit_code": 0, "time": 1.0, "reported": 1.0}')
        for one in (PLACES[0], PLACES[2])
    ]
    assert "\n" not in end.error
    try:
        raise_failure(place.work, [*others, end], {}, None, SPEC.nodes, link_state().links, {})
    except ClusterError as error:
        assert len(str(error)) < 300_000 and len(error.message.splitlines()) < 50


@expected
def rank_states(place, data):
    """The rank states from which a stall is found."""
    good = json.dumps({str(place.rank): example(RankState) for place in PLACES}).encode()
    before = _read_states(PLACES, dict.fromkeys(NAMES, good))
    now = _read_states(PLACES, one_odd(good, data))
    for place_, state in now.items():
        if state and before[place_]:
            has_moved(before[place_], state, 10.0)
    words = find_stall(now, SPEC.nodes, 31.0, 1000.0, {}).words()
    assert len(words) < 20_000


@expected
def versions(place, data):
    json_text(read_versions(data))


@expected
def output(place, data):
    """The ranks' output: into their logs, and onto a terminal."""
    out = io.StringIO()
    printer = LinePrinter(NAMES, out)
    log = place.work / "node2.log"
    copy_lines(split_lines([data[:7], data[7:]]), log, partial(printer.print, "node2"))
    for line in last_lines(log, 8):
        assert "\x1b[2J" not in visible(line)
    assert len(out.getvalue()) < 50 * len(data) + 1000


@expected
def archive(place, pieces, exit_code, stderr):
    """Results as a tar archive, whose files are sorted into the run folder."""
    folder = place.work / "run"
    fleet = FakeFleet(dict.fromkeys(NAMES, (pieces, stderr, exit_code)))
    fetch = Fetch("/run/here", folder / "files", 1 << 22)
    fetched = fetch_results(fleet, NAMES[:2], fetch, Console(quiet=True))
    assert all(one.failure.isprintable() and len(one.failure) < 500 for one in fetched.values())
    for node in NAMES[:2]:
        sort_results(folder, node, [one for one in PLACES if one.node == node])
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert not folder.is_dir() or {p.name for p in folder.iterdir()} <= {
        "files",
        "metrics",
        "model.pt",
    }
    deal_checkpoints(folder, PLACES)


def metrics(place, changed, data):
    """The ranks' metrics: the accounts of a run, and everything that later reads its folder."""
    folder = write_folder(place, changed, data)
    names = sorted(p.stem for p in (folder / "metrics").glob("*.jsonl") if "." not in p.stem)
    told = {name: last_events(folder, name) for name in names}
    state = replace(link_state(), notes=())
    list(read_parts(folder / "metrics" / f"{names[0]}.collectives.jsonl"))
    reckon = partial(
        account,
        nodes=names,
        addresses=SPEC.addresses(names),
        link_state=state,
        carried={"node1->node2": 10**6},
        contract=None,
        changing=False,
        throttled_s={},
    )
    with redirect_stderr(io.StringIO()):
        try:
            json_text(reckon(folder, told))
            place.count("accounts")
        # caught as in cluster/run/runner.py: the files need not be consistent
        except Exception as error:
            place.count(f"no accounts: {type(error).__name__}")
    read_again(place, folder)


EVENTS = [{"event": name, **example(kind)} for kind, name in EVENT_NAMES.items()]
LOOKS = [
    json.loads(telemetry_line(1, BEGAN + at, ["node1", "node3"], sent=at * 10**5, **values))
    for at in (3, 4, 5)
    for values in ({"step": at, "loss": 0.5, "compute_s": 1.0, "score": ["test_accuracy", 0.5]},)
]
RANKS = {str(rank): example(RankState) for rank in range(3)}


@st.composite
def changed_metrics(draw):
    """Draw one metrics file with changed lines: its path and its bytes."""
    files = good_run()
    path = draw(st.sampled_from(sorted(path for path in files if "metrics" in path.parts)))
    rows = [json.loads(line) for line in files[path].splitlines()]
    more = [example(CollectiveLine)] if "collectives" in path.name else EVENTS
    return path, draw(line_files([*rows, *draw(st.sampled_from(([], more)))]))


CASES = {
    "shown": (answers([SHOWN["node2"]]), shown),
    "report": (answers([example(LinkReport)]), report),
    "node_check": (answers([example(NodeCheck)]), node_check),
    "probes": (probe_answers.twists(), probes),
    "traces": (line_files([json.loads(line) for line in REPLAYED.splitlines()]), traces),
    "telemetry": (line_files(LOOKS), telemetry),
    "state_document": (
        answers([json.loads(to_json(describe(running(), [], BEGAN)))]),
        state_document,
    ),
    "rank_report": (
        st.tuples(line_files([example(RankReport)]), st.integers(-9, 255)),
        rank_report,
    ),
    "rank_states": (answers([RANKS]), rank_states),
    "versions": (answers([{"python": "3.13.1", "torch": "2.6.0+cpu"}]), versions),
    "output": (
        damaged(b"step 1\n\x1b[31mred\x1b[0m\r 50%\r\xff\xfe\x1b]0;title\x07\n" * 3),
        output,
    ),
    "archive": (archives(), archive),
    "metrics": (changed_metrics(), metrics),
}
