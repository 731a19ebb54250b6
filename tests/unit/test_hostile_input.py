"""Malformed files, arguments and leftovers are refused in one clear line, and never reported as a bug of ours."""

import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import cluster.doctor
import cluster.run.program
from cluster.accounting.metrics_table import metric_rows
from cluster.base.errors import ClusterError, NodeError, UsageError
from cluster.base.files import last_lines
from cluster.base.spec import ClusterSpec
from cluster.engine.resources import make_resource_request
from cluster.links.changes import parse_seconds
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology
from cluster.links.traces import load_trace
from cluster.live.follow import read_pointer, read_state
from cluster.run.program import pack, training, user_program
from cluster.schedule.schedule_file import load_schedule
from cluster.shaping.cluster_links import read_cluster_links
from cluster.shaping.link_state import read_link_state, settings_document
from cluster.shaping.temporary_changes import read_temporary_changes
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import Result
from protocol.link_report import LinkCounters
from protocol.node_plan import Peer
from protocol.probe import Arrivals, check_arrivals
from protocol.reader import FormatError, document

MOST_CHARACTERS = 1000
NINES, MANY_NINES = "9" * 400, "9" * 5000
LAUGHS = "a: &a [lol]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n"
    for below, name in itertools.pairwise("abcdefghijkl")
)


def refusal(action):
    with pytest.raises(UsageError) as refused:
        action()
    words = str(refused.value)
    assert len(words) < MOST_CHARACTERS
    assert len(refused.value.message.splitlines()) == 1
    return words


PROFILES = {
    "rate_mbyte_s: 2026-13-45\ndelay_ms: 1": "rate_mbyte_s is '2026-13-45'",
    "rate_mbyte_s: 2026-01-02\ndelay_ms: 1": "rate_mbyte_s is '2026-01-02'",
    "[" * 1000: "nested too deeply",
    f"rate_mbyte_s: {NINES}\ndelay_ms: 1": "a number that is too large in line 1",
    f"rate_mbyte_s: {MANY_NINES}\ndelay_ms: 1": "a number that is too large in line 1",
    f"rate_mbyte_s: 0x{'f' * 5000}\ndelay_ms: 1": "a number that is too large in line 1",
    "rate_mbyte_s: !!int ''\ndelay_ms: 1": "no whole number in line 1",
    "rate_mbyte_s: !!int x\ndelay_ms: 1": "no whole number in line 1",
    "rate_mbyte_s: !!float x\ndelay_ms: 1": "not YAML",
    "rate_mbyte_s: !!bool x\ndelay_ms: 1": "not YAML",
    "rate_mbyte_s: !!timestamp x\ndelay_ms: 1": "rate_mbyte_s is 'x'",
    LAUGHS + "rate_mbyte_s: *l\ndelay_ms: 1": "unknown key",
    "rate_mbyte_s: &r [*r]\ndelay_ms: 1": "rate_mbyte_s is [[[",
    f"rate_mbyte_s: {'x' * 10**5}\ndelay_ms: 1": "rate_mbyte_s is 'xxx",
    f"? {'x' * 10**5}\n: 1": "unknown key",
}


@pytest.mark.parametrize(("text", "words"), PROFILES.items(), ids=range(len(PROFILES)))
def test_a_profile_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "mine.yml"
    path.write_text(text)
    assert words in refusal(lambda: load_profile(str(path)))


def test_a_value_that_stands_for_gigabytes_is_cut_short(tmp_path):
    """Billion laughs: it loads at once, as its lists are shared, but its text would exhaust the memory."""
    path = tmp_path / "laughs.yml"
    laughs = f"{{{', '.join(LAUGHS.splitlines())}}}"
    path.write_text(f"rate_mbyte_s: {laughs}\ndelay_ms: 1\n")
    assert "rate_mbyte_s is {" in refusal(lambda: load_profile(str(path)))
    path.write_text(f"name: {laughs}\nlinks: [*l]\n")
    assert "links[0] is [[[" in refusal(lambda: load_topology(str(path)))
    path.write_text(f"name: {laughs}\nbase: *l\n")
    assert "unknown base" in refusal(lambda: load_topology(str(path)))
    words = [line.partition(": ")[2] for line in LAUGHS.splitlines()]
    for key in ("at", "profile", "link", "partition", "cpus", "flap", "trace", "heal", "other"):
        item = (
            {"at": "1s", "down": "1s", "up": "1s", "times": "1"} if key == "flap" else {"at": "1s"}
        )
        item |= {"link": "a:b"} if key == "trace" else {}
        item |= {"profile": "wan"} if key == "at" else {}
        item |= {key: f"[{', '.join(words)}]"}
        path.write_text(
            "- {" + ", ".join(f"{name}: {value}" for name, value in item.items()) + "}\n"
        )
        refusal(lambda: load_schedule(path))
    path.write_text(f"- {{at: 1s, cpus: {laughs}}}\n")
    assert "cpus" in refusal(lambda: load_schedule(path))


SCHEDULES = {
    "- {at: step ², profile: wan}": "at is 'step ²'",
    f"- {{at: step {MANY_NINES}, profile: wan}}": "at is 'step 999",
    f"- {{at: {MANY_NINES}s, profile: wan}}": "at is '999",
    "- {at: 10000000000s, profile: wan}": "at is '10000000000s'",
    f"- {{at: 1s, link: node1:node2, delay_ms: {NINES}}}": "too large",
    "- {at: 1s, profile: 2026-13-45}": "unknown profile '2026-13-45'",
    f"- {{at: 1s, profile: {'x' * 300}/}}": "no profile file",
    "- {at: 1s, cpus: {node3: 2026-01-02}}": "cpus of node3",
    f"- {{at: 1s, flap: node1:node2, down: 1s, up: 1s, times: {NINES}}}": "too large",
    "- {at: 1s, partition: &p [*p, *p]}": "partition",
}


@pytest.mark.parametrize(("text", "words"), SCHEDULES.items(), ids=range(len(SCHEDULES)))
def test_a_schedule_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "storm.yml"
    path.write_text(text)
    assert words in refusal(lambda: load_schedule(path))


def test_a_topology_file_that_names_a_file_is_refused(tmp_path, monkeypatch):
    """The file named may be the file itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yml").write_text("./loop.yml\n")
    assert "unknown topology" in refusal(lambda: load_topology("./loop.yml"))
    (tmp_path / "ring.yml").write_text("ring\n")
    assert load_topology("./ring.yml").base == "ring"


TRACES = {
    "²\n": "no time_s",
    f"{MANY_NINES}\n": "no time_s",
    f"1\n{MANY_NINES}\n": "line 2",
    "1\n²\n": "line 2",
    "1\n99999999999\n": "at most",
    "time_s,delay_ms\n0,1\n1e11,1\n": "at most",
    "time_s,delay_ms\n0,1\n1e300,1\n": "at most",
    f"time_s,delay_ms\n0,{'1' * 200_000}\n": "line 2",
    f"{'x' * 200_000}\n": "line 1",
    f"time_s,{'x' * 100_000}\n0,1\n": "unknown column",
    f"time_s,delay_ms\n0,{'x' * 100_000}\n": "delay_ms is 'xxx",
    f"1\n{'x' * 100_000}\n": "line 2 is 'xxx",
}


@pytest.mark.parametrize(("text", "words"), TRACES.items(), ids=range(len(TRACES)))
def test_a_trace_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "ride.trace"
    path.write_text(text)
    assert words in refusal(lambda: load_trace(path))


def test_a_missing_trace_is_refused_in_one_line(tmp_path):
    assert "No such file" in refusal(lambda: load_trace(tmp_path / "none.csv"))
    assert "too long" in refusal(lambda: load_trace(tmp_path / ("x" * 300)))


@pytest.mark.parametrize("size", [f"{NINES}g", "1e400", "inf", "9999999999t", "²g", f"{NINES}"])
def test_a_memory_that_cannot_be_is_refused(size):
    assert "memory of all is" in refusal(lambda: make_resource_request(memory=size))


@pytest.mark.parametrize("time", ["10000000000s", "9999999h", f"{MANY_NINES}s", "²s"])
def test_a_time_that_nobody_can_wait_for_is_refused(time):
    """time.sleep accepts at most about 292 years."""
    refusal(lambda: parse_seconds(time))


@pytest.mark.parametrize("load", [load_profile, load_topology])
def test_a_name_that_no_file_can_have_is_refused(load):
    assert "file" in refusal(lambda: load(f"./{'x' * 300}.yml"))


@pytest.mark.parametrize("words", [["x" * 300], ["-m", "x" * 300], ["-m", "../.."], ["-m", ""]])
def test_a_script_that_no_file_can_be_is_refused(words):
    refusal(lambda: user_program(words))


@pytest.mark.parametrize("folder", [None, Path("\ud800")])
def test_a_word_of_letters_that_no_argument_can_have_is_refused(folder, tmp_path, monkeypatch):
    """A YAML file may contain letters that a locale other than UTF-8 cannot encode."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    odd = [] if folder else ["--name", "\ud800"]
    assert "lacks" in refusal(lambda: user_program(["train.py", *odd], folder))
    assert "lacks" in refusal(lambda: training(["--strategy", "./train.py:A", *odd], folder))


def test_a_word_with_a_nul_is_refused_as_no_process_can_have_it(tmp_path):
    (tmp_path / "train.py").write_text("")
    folder, odd = tmp_path, ["--note", "a\0b"]
    assert "NUL" in refusal(lambda: user_program(["train.py", *odd], folder))
    assert "NUL" in refusal(lambda: training(odd))


@pytest.fixture
def program(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "secret.txt").write_text("")
    return tmp_path / "train.py"


def test_a_file_of_the_program_that_cannot_be_read_is_refused_before_anything_starts(
    program, monkeypatch
):
    """os.access is patched, as the user who runs this test may be able to read every file."""
    secret = program.parent / "secret.txt"
    monkeypatch.setattr(os, "access", lambda path, mode: path != secret)
    assert f"{secret} cannot be read" in refusal(lambda: user_program([str(program)]))


def test_a_folder_of_the_program_that_cannot_be_read_is_refused_and_not_left_out(
    program, monkeypatch
):
    folder = program.parent / "private"
    folder.mkdir()
    true_scandir = os.scandir

    def scandir(path):
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return true_scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert f"{folder}" in refusal(lambda: user_program([str(program)]))


def test_a_file_of_the_program_that_vanishes_is_an_error_of_one_line(program, monkeypatch):
    gone = program.parent / "gone.txt"
    monkeypatch.setattr(cluster.run.program, "_files", lambda folder: [program, gone])
    with pytest.raises(ClusterError, match="No such file or directory") as failed:
        pack(program.parent)
    assert str(gone) in str(failed.value)


SETTINGS = {"kernel": "6.1.0", "wmem_max_bytes": 212992, "rmem_max_bytes": 212992}
SETTINGS |= {"tcp_wmem_bytes": 4194304, "tcp_rmem_bytes": 6291456}
SETTINGS |= {"slow_start_after_idle": True, "default_tcp": "cubic", "mtu": 1500}
WHOLE = {"plan": None, "report": None, "counters": {}, "notes": [], "replayed": []}
CORE = {"total_s": 9.0, "idle_s": 5.0, "softirq_s": 0.1, "steal_s": 0.0}
HOST = {"at_s": 9.0, "cores": [CORE], "waiting_s": 1.5, "throttled_s": None}
LATENESS = {"packets": 9, "late": 1, "worst_ms": 2.5, "dropped": 0}
WHOLE |= {"settings": SETTINGS, "lateness": LATENESS, "host": HOST, "received": {}}
HUGE = int(NINES)


class OddFleet(Fleet):
    """Two nodes; node2 gives the same answer to every request."""

    def __init__(self, answer):
        self.nodes = ()
        self._answer = answer

    def run(self, argv, **kwargs):
        whole = json.dumps(WHOLE).encode()
        return {
            "node1": Result("node1", 0, whole, b""),
            "node2": Result("node2", 0, self._answer, b""),
        }


@pytest.mark.parametrize(
    "answer",
    [b"", b"no JSON", b"\xff\xfe", b"[" * 100_000, b"5", b"null", b"[]", b"{}", b'{"plan": 5}']
    + [b'{"plan": {"links": 5}, "report": {}, "counters": {}, "notes": [], "replayed": []}']
    + [b'{"plan": null, "report": null, "counters": {}, "notes": 7, "replayed": [1]}']
    + [json.dumps(WHOLE | {"settings": wrong}).encode() for wrong in (None, [], {"kernel": 5})]
    + [json.dumps(WHOLE | {"settings": SETTINGS | {"wmem_max_bytes": -1}}).encode()]
    + [
        json.dumps(WHOLE | {"host": HOST | wrong}).encode()
        for wrong in ({"cores": 5}, {"at_s": HUGE})
    ]
    + [
        json.dumps(WHOLE | {"lateness": LATENESS | {"late": wrong}}).encode()
        for wrong in (-1, HUGE)
    ]
    + [json.dumps(WHOLE | {"counters": {"node1": {"sent_bytes": 5}}}).encode()],
)
def test_a_node_that_answers_something_else_is_named(answer):
    """For example a node of another version, with a full disk, or with a program that somebody changed."""
    with pytest.raises(NodeError) as failed:
        read_link_state(OddFleet(answer))
    assert "node2" in str(failed.value)
    assert len(str(failed.value)) < MOST_CHARACTERS


def test_nodes_that_answer_as_they_should_are_understood():
    shape = read_link_state(OddFleet(json.dumps(WHOLE).encode()))
    assert settings_document(shape) == [
        {"nodes": ["node1", "node2"], **SETTINGS, "wire": "", "tcp": ""}
    ]


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "5", '{"folder": "a\\u0000", "pid": 1, "started": "5"}']
)
@pytest.mark.parametrize("pid", ["1", "1e999", "null"])
def test_records_that_are_damaged_say_nothing(tmp_path, text, pid):
    """Covers the pointer to the current run, and the notes of temporary changes."""
    text = text.replace('"pid": 1', f'"pid": {pid}')
    (tmp_path / "run.json").write_text(text)
    pointer = read_pointer(tmp_path)
    assert pointer is None or read_state(pointer.folder) is None
    note = f'{{"pid": {pid}, "limits": {{}}, "what": "", "started": 5}}' if "pid" in text else text
    (tmp_path / "temporary-1-1.json").write_text(note)
    changes = read_temporary_changes(SimpleNamespace(state_dir=tmp_path))
    assert [one.alive for one in changes] in ([], [False])


def test_a_kernels_wires_that_nobody_understands_are_a_finding():
    for answer in ("no JSON", "[" * 100_000, '{"netem": 5}', "[]"):
        done = SimpleNamespace(returncode=0, stdout=answer)
        engine = SimpleNamespace(where="", try_wires=lambda image, done=done: done)
        [finding] = cluster.doctor._wires(engine)
        assert "answers something else" in finding.found and finding.advice


PAIR = ClusterSpec(size=2)
STRANGER = Peer("10.77.0.99", "02:67:77:00:00:99")
PLAN = link_plans(PAIR.nodes, make_link_spec("mobile", "full", 1, "nfqueue"))["node2"]
REPORT = {
    "node": "node2",
    "device": "eth0",
    "mtu": 1500,
    "wire": "nfqueue",
    "tcp": "cubic",
    "notes": [],
}
REPORTED = [link._asdict() for link in PLAN.links]


@pytest.mark.parametrize(
    "links",
    [
        [],
        [REPORTED[0] | {"dst": "node99"}, *REPORTED],
        [REPORTED[0] | {"delay_ms": 1.0}, REPORTED[1]],
    ],
)
def test_a_node_that_reports_other_links_than_those_of_its_plan_is_named(links):
    answer = WHOLE | {"plan": document(PLAN), "report": REPORT | {"links": links}}
    with pytest.raises(NodeError, match=r"node2: .report\.links: not the links of the plan"):
        read_link_state(OddFleet(json.dumps(answer).encode()))


def test_a_node_that_reports_the_links_of_its_plan_is_understood():
    answer = WHOLE | {"plan": document(PLAN), "report": REPORT | {"links": REPORTED}}
    assert read_cluster_links(OddFleet(json.dumps(answer).encode()), PAIR).links


@pytest.mark.parametrize(
    "report",
    [
        {
            "mtu": 52
        },  # less than the headers of a datagram: a division by zero in what a link carries
        {"mtu": 10**9},
        {"tcp": "a\0b"},  # YAML writes these to run.yml, and cannot read them again
        {"tcp": "\ud800"},
        {"tcp": "x" * 10**6},
        {"device": "eth0\n"},
    ],
)
def test_a_node_that_reports_what_no_kernel_has_is_named(report):
    report = REPORT | {"links": REPORTED} | report
    answer = WHOLE | {"plan": document(PLAN), "report": report}
    with pytest.raises(NodeError, match="node2"):
        read_link_state(OddFleet(json.dumps(answer).encode()))


COUNTERS = dict.fromkeys(LinkCounters._fields, 1)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("plan.node", {"plan": document(PLAN._replace(node="node3", peers={}, links=[]))}),
        ("plan", {"plan": document(PLAN._replace(peers=PLAN.peers | {"node99": STRANGER}))}),
        ("counters", {"counters": {"x" * 10**6: COUNTERS}}),
        ("received", {"received": {"node99": {"packets": 1, "lost": 0}}}),
        ("replayed", {"replayed": [["node1", "node99"]]}),
    ],
)
def test_a_node_that_names_nodes_which_the_cluster_does_not_have_is_named(key, change):
    """What follows looks nodes up by these names, and writes them to summary.json."""
    answer = WHOLE | {"plan": document(PLAN), "report": REPORT | {"links": REPORTED}} | change
    if key == "plan.node":
        answer |= {"report": None}
    with pytest.raises(NodeError, match=rf"node2: .{key}: ") as failed:
        read_cluster_links(OddFleet(json.dumps(answer).encode()), PAIR)
    assert len(str(failed.value)) < MOST_CHARACTERS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrived": 10**18}, "arrived"),
        ({"twice": 10**9}, "twice"),
        ({"gaps": 61}, "gaps"),
        ({"reordered": 61}, "reordered"),
    ],
)
def test_more_pings_than_were_sent_do_not_arrive(change, words):
    with pytest.raises(FormatError, match=words):
        check_arrivals(Arrivals(60, 0, 0, 0, [], [])._replace(**change), 60)


@pytest.mark.parametrize(
    ("hostfile", "names"),
    [
        ("node1 slots=1\nnode2 slots=1\n", ["node1", "node2"]),
        ("west slots=2\n", ["west-0", "west-1"]),
    ],
)
def test_a_rank_is_known_by_its_file_and_not_by_what_its_lines_say(tmp_path, hostfile, names):
    """Rank 0's tests decide the ranking of a sweep: another node must not write some for it."""
    (tmp_path / "hostfile").write_text(hostfile)
    (tmp_path / "metrics").mkdir()
    for name, accuracy in zip(names, (0.5, 0.99), strict=True):
        events = [
            {"event": "start", "rank": 0, "time": 100.0},
            {"event": "eval", "rank": 0, "time": 102.0, "step": 1, "test_accuracy": accuracy},
            {"event": "step", "rank": 0, "time": 101.0, "step": 1, "sent_bytes": 10},
        ]
        text = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / "metrics" / f"{name}.jsonl").write_text(text)
    found = [(row["rank"], row["node"], row["test_accuracy"]) for row in metric_rows(tmp_path)]
    assert found == [(0, names[0], 0.5), (1, names[1], 0.99)]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_has_no_last_lines(tmp_path, make):
    """A copied run folder may hold a pipe in a log's place: reading it would wait for ever."""
    make(tmp_path / "node1.log")
    (tmp_path / "link.log").symlink_to(tmp_path / "node1.log")
    assert last_lines(tmp_path / "node1.log", 5) == last_lines(tmp_path / "link.log", 5) == []
    (tmp_path / "node2.log").write_text("a\nb\n")
    assert last_lines(tmp_path / "node2.log", 1) == ["b"]
