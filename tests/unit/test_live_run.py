"""The live view of a launch whose nodes are local processes: what followers see, the web page, the bounds."""

import http.client
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from live_runs import BEGAN, running, tracker, under_way

from cluster import launch, watch
from cluster.base.errors import ClusterError, NodeError, UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.cli.live_options import check_port
from cluster.live import follow, telemetry
from cluster.live.describe import describe
from cluster.live.http_page import PAGE, HttpPage, content_policy
from cluster.live.live_run import LiveOptions, live_run
from cluster.live.news import RankEnded
from cluster.live.state import LineRow, parse_state, to_json
from cluster.live.telemetry import Post, bounded


@contextmanager
def gone_at_the_end():
    """Turn the error of pipes that a test has closed into that of a node that has gone."""
    try:
        yield
    except ValueError as error:
        raise NodeError("no connection", {"node1": "SSH is closed"}) from error


class LocalProcess:
    """A stand-in for RemoteProcess on this machine."""

    def __init__(self, argv):
        self.process = subprocess.Popen(
            argv,
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def write(self, data):
        with gone_at_the_end():
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def chunks(self):
        with gone_at_the_end():
            yield from iter(lambda: self.process.stdout.read1(65536), b"")

    def close(self):
        with gone_at_the_end():
            self.process.stdin.close()

    def wait(self):
        with gone_at_the_end():
            words = self.process.stderr.read()
        return self.process.wait(timeout=30), words

    def remove(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError, ValueError):
                pipe.close()


class Fleet:
    """A fleet of local processes; a test may replace their argv."""

    def __init__(self, argv=None):
        self.lost, self.argv, self.begun, self.is_over = {}, argv, [], False
        self.lock = threading.Lock()

    def start(self, node, argv):
        with self.lock:
            if self.argv == [] or self.is_over:
                raise NodeError("no connection", {node: "SSH is closed"})
            words = self.argv or [sys.executable if word == "python3" else word for word in argv]
            self.begun.append(LocalProcess(words))
            return self.begun[-1]

    def end(self):
        """Remove all processes; none may start meanwhile or afterwards."""
        with self.lock:
            self.is_over = True
        for process in self.begun:
            process.remove()


@pytest.fixture
def make_fleet():
    fleets = []

    def make(argv=None):
        fleets.append(Fleet(argv))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.end()


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster.base.spec.PROJECT_DIR", tmp_path)
    spec = ClusterSpec()
    spec.state_dir.mkdir(parents=True)
    return spec


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    return folder


def posts(tmp_path):
    return [Post("node1", "none", {0: str(tmp_path / "metrics.jsonl")}, [])]


def eventually(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return value


def test_others_find_a_run_and_see_it_end(spec, folder, tmp_path, make_fleet):
    said = []
    (tmp_path / "metrics.jsonl").write_text(
        json.dumps({"event": "step", "rank": 0, "step": 7, "time": 1.0, "loss": 0.5}) + "\n"
    )
    (folder / "events.jsonl").write_text('{"after_s": 1.5, "what": "wan"}\n{"after_s": 2')
    states = []
    with live_run(tracker(1), spec.state_dir, folder, LiveOptions(), said.append) as live:
        pointer = follow.find_run(spec)
        follower = threading.Thread(target=lambda: states.extend(follow.follow(pointer)))
        follower.start()
        with live.following(fleet := make_fleet(), posts(tmp_path)):
            live.hear("node1", "hello")
            eventually(lambda: any(state.step == 7 and state.events for state in states))
        fleet.begun[0].process.wait(timeout=30)
        live.tell(RankEnded("node1", 0))
    follower.join(timeout=10)
    assert states[-1].is_over
    assert states[-1].ranks[0].state == "ended"
    assert states[-1].lines == (LineRow("node1", "hello"),)
    assert [event.what for event in states[-1].events] == ["wan"]
    assert follow.read_pointer(spec.state_dir) is None
    assert said == []
    assert json.loads((folder / "live.json").read_text())["phase"] == "ended"


def test_without_it_nothing_is_asked_or_written(spec, folder, tmp_path, make_fleet):
    fleet = make_fleet()
    with live_run(tracker(), spec.state_dir, folder, LiveOptions(is_on=False), print) as live:
        with live.following(fleet, posts(tmp_path)):
            live.tell(RankEnded("node1", 0))
        with pytest.raises(ClusterError, match="no run is going on"):
            follow.find_run(spec)
    assert (fleet.begun, list(folder.iterdir()), list(spec.state_dir.iterdir())) == ([], [], [])


BAD = {
    "no connection": [],
    "an older image": [
        sys.executable,
        "-c",
        "import sys; sys.exit('No module named node.telemetry')",
    ],
    "what is no line": [sys.executable, "-c", "print('{' * 10**5)"],
    "a flood": [sys.executable, "-c", "while True: print('x' * 1000)"],
    "a flood of carriage returns": [sys.executable, "-c", "while True: print(end='\\r' * 1000)"],
}


@pytest.mark.parametrize("argv", BAD.values(), ids=BAD)
def test_a_node_that_tells_nothing_is_said_once_and_harms_nothing(
    spec, folder, tmp_path, monkeypatch, make_fleet, argv
):
    monkeypatch.setattr(telemetry, "AGAIN_AFTER_S", 0.01)
    said, fleet = [], make_fleet(argv)
    both = [*posts(tmp_path), Post("node2", "none", {}, [])]
    with (
        live_run(tracker(), spec.state_dir, folder, LiveOptions(), said.append) as live,
        live.following(fleet, both),
    ):
        eventually(lambda: said)
        time.sleep(0.1)
    assert len(said) == 1 and " stopped sending telemetry: " in said[0]


def test_its_end_is_bounded_whatever_a_node_does(spec, folder, tmp_path, monkeypatch, make_fleet):
    monkeypatch.setattr(telemetry, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(LocalProcess, "close", lambda process: time.sleep(60))
    fleet = make_fleet([sys.executable, "-c", "input()"])
    with live_run(tracker(1), spec.state_dir, folder, LiveOptions(), print) as live:
        with live.following(fleet, posts(tmp_path)):
            eventually(lambda: fleet.begun)
            started = time.monotonic()
        assert time.monotonic() - started < 10


def test_a_disk_that_is_full_is_said_once(spec, folder, monkeypatch):
    said = []
    monkeypatch.setattr(
        "cluster.live.live_run.write_atomically",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with live_run(tracker(), spec.state_dir, folder, LiveOptions(), said.append) as live:
        live.tell(RankEnded("node1", 0))
    assert said == [
        f"`watch` is unavailable: cannot write {folder / 'live.json'}: No space left on device"
    ]


def test_a_bug_of_ours_in_it_is_said_and_the_run_goes_on(spec, folder, monkeypatch):
    said = []
    monkeypatch.setattr("cluster.live.live_run.update", lambda *_: 1 / 0)
    with live_run(tracker(), spec.state_dir, folder, LiveOptions(), said.append) as live:
        live.tell(RankEnded("node1", 0))
    assert len(said) == 1 and "ZeroDivisionError" in said[0]


def test_who_says_too_much_is_heard_no_more():
    with pytest.raises(ClusterError, match="more than 1 MiB"):
        list(bounded(b"x" * 1000 for _ in range(2000)))
    assert len(list(bounded([b"x"] * 1000))) == 1000


def test_a_launch_that_was_killed_is_no_run(spec, folder):
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    document = {"pid": ended.pid, "started": "5", "folder": str(folder)}
    (spec.state_dir / "run.json").write_text(json.dumps(document))
    with pytest.raises(ClusterError, match="no run is going on in cluster 'gradwire'"):
        follow.find_run(spec)
    (folder / "live.json").write_text(to_json(describe(running(), (), BEGAN)))
    pointer = follow.read_pointer(spec.state_dir)
    with pytest.raises(ClusterError, match="ended without recording a result"):
        list(follow.follow(pointer))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"pid": "x", "started": 1, "folder": 2}', "[" * 9999]
)
def test_a_pointer_that_is_none_is_no_run(spec, text):
    (spec.state_dir / "run.json").write_text(text)
    assert follow.read_pointer(spec.state_dir) is None


@pytest.fixture
def going_on(spec, folder):
    """A run of this process, ten seconds old."""
    with follow.pointed_at(spec.state_dir, folder):
        (folder / "live.json").write_text(to_json(describe(under_way(10), (), BEGAN + 10)))
        yield folder


def test_watch_once_prints_one_screen(going_on, capsys):
    assert watch.main(["--once"]) == 0
    assert "step 10/200" in capsys.readouterr().out


def test_watch_once_as_json_prints_one_document(going_on, capsys):
    assert watch.main(["--once", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert parse_state(lines[0]).step == 10


def test_watch_as_json_prints_a_document_a_line_until_the_run_ends(going_on, capsys):
    last = describe(under_way(11), (), BEGAN + 11)

    def end():
        time.sleep(0.6)
        (going_on / "live.json").write_text(to_json(last).replace('"running"', '"ended"'))

    thread = threading.Thread(target=end)
    thread.start()
    assert watch.main(["--json"]) == 0
    thread.join()
    assert [parse_state(line).step for line in capsys.readouterr().out.splitlines()] == [10, 11]


def test_watch_without_a_run_says_so_in_one_line(spec, capsys):
    assert watch.main([]) == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == (
        "error: no run is going on in cluster 'gradwire'; a run with --no-live cannot be watched"
    )
    assert said.out == ""
    assert watch.main(["--name", "A cluster"]) == 2


def test_a_port_that_cannot_be_had_is_refused_before_anything_is_started(going_on, capsys):
    page = HttpPage(0)
    try:
        port = page.url.rstrip("/").rpartition(":")[2]
        assert watch.main(["--http", port]) == 1
        assert f"port {port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    finally:
        page.close()
    assert watch.main(["--http", "70000"]) == 2
    with pytest.raises(UsageError):
        check_port(-1)


def test_a_page_and_no_live_view_exclude_each_other(capsys):
    assert launch.main(["--http", "0", "--no-live"]) == 2
    assert "--http and --no-live exclude each other" in capsys.readouterr().err


@pytest.fixture
def page():
    page = HttpPage(0)
    yield page
    page.close()


def ask(page, path, host=None, method="GET"):
    port = int(page.url.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    return SimpleNamespace(
        status=answer.status, headers=answer.headers, body=answer, close=connection.close
    )


def test_the_page_is_there_on_this_machine_alone(page):
    answer = ask(page, "/")
    assert (answer.status, answer.body.read()) == (200, PAGE.read_bytes())
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert policy.count("sha256-") == 2
    answer.close()
    assert page._server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
@pytest.mark.parametrize("path", ["/", "/events", "/state"])
def test_a_name_that_is_not_this_machines_is_refused(page, host, path):
    answer = ask(page, path, host)
    assert answer.status == 403
    answer.body.read()
    answer.close()


def test_browsers_leave_out_the_port_of_http(page, monkeypatch):
    port = int(page.url.rstrip("/").rpartition(":")[2])
    monkeypatch.setattr("cluster.live.http_page.HTTP_PORT", port)
    for host, status in (("localhost", 200), (f"127.0.0.1:{port}", 200), ("evil.example", 403)):
        answer = ask(page, "/state", host)
        assert answer.status == status
        answer.body.read()
        answer.close()


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/../x", 404), ("POST", "/", 501)])
def test_nothing_else_is_served(page, method, path, status):
    answer = ask(page, path, method=method)
    assert answer.status == status
    answer.body.read()
    answer.close()


def test_each_state_comes_as_an_event_and_the_stream_ends_with_the_run(page):
    page.show('{"number":1}')
    answer = ask(page, "/events")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.body.readline() == b'data: {"number":1}\n'
    answer.body.readline()
    page.show('{"number":2}')
    assert answer.body.readline() == b'data: {"number":2}\n'
    page.show('{"number":3}', is_last=True)
    rest = answer.body.read()  # the stream ends
    assert rest == b'\ndata: {"number":3}\n\nevent: over\ndata: \n\n'
    answer.close()
    last = ask(page, "/state")
    assert json.loads(last.body.read()) == {"number": 3}
    last.close()


def test_a_page_that_is_closed_ends_its_streams_and_frees_its_port():
    page = HttpPage(0)
    answer, ends = ask(page, "/events"), queue.Queue()
    threading.Thread(target=lambda: ends.put(answer.body.read()), daemon=True).start()
    page.close()
    assert ends.get(timeout=10).endswith(b"event: over\ndata: \n\n")
    answer.close()
    with pytest.raises(OSError):
        ask(page, "/")


def test_the_page_asks_for_nothing_from_outside_and_sets_no_markup():
    text = PAGE.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "innerHTML" not in text and "eval(" not in text
    assert " on" not in {text[at : at + 3] for at in range(len(text)) if text[at - 1 : at] == "<"}
    assert content_policy(text).count("'sha256-") == 2
    assert os.path.getsize(PAGE) < 40_000  # noqa: PTH202


def test_the_page_says_how_often_it_looks_and_why_it_was_refused():
    """A refusal (the 17th reader gets 503) closes an EventSource for good: it does not try again."""
    text = PAGE.read_text(encoding="utf-8")
    assert "once a second" not in text and "every ${digits(state.interval_s, 3)} s" in text
    [handler] = re.findall(r"source\.onerror = .*?;\n", text, re.DOTALL)
    assert handler.index("CLOSED ?") < handler.index("too many pages") < handler.index("trying")
