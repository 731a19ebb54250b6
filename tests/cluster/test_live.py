"""The live view of a run: on its own terminal, from another shell, as a web page; observers do not disturb the run."""

import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress

import pytest
from containers import PROJECT_DIR, bring_up, eventually, last_run, paused

from cluster.live.follow import read_pointer
from cluster.live.state import parse_state

STEPS = ["--strategy", "ddp", "--steps", "100000", "--eval-every", "0"]
ATTACHED_S = 2.0
QUICK_S = 0.1  # of what `python_s` does; where it takes longer, so may everything else
ROWS, COLUMNS = 40, 120
SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
# Ends as soon as the file that its argument names exists on its node; `end` creates it.
UNTIL_ENDED = """\
import os, sys, time
print("words", flush=True)
deadline = time.monotonic() + 120
while not os.path.exists(sys.argv[1]) and time.monotonic() < deadline:
    time.sleep(0.1)
"""


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Pty:
    """A verb on a terminal of its own, and everything that it has shown there."""

    def __init__(self, argv):
        self.master, slave = pty.openpty()
        resize(slave, ROWS, COLUMNS)
        self.before = termios.tcgetattr(slave)
        environ = os.environ | {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(
            argv, cwd=PROJECT_DIR, stdin=slave, stdout=slave, stderr=slave, env=environ,
            start_new_session=True, preexec_fn=hear_interrupts,
        )  # fmt: skip
        self.slave, self.text = slave, ""

    def read(self, for_s=0.1):
        """Return everything shown so far, including new output."""
        while select.select([self.master], [], [], for_s)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        return self.text

    def wait(self):
        """Wait until the verb has ended, and return its exit code."""
        deadline = time.monotonic() + 120
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-3000:]
            self.read()
        self.read()
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.wait()
        os.close(self.master)
        os.close(self.slave)


def hear_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.fixture
def on_terminal(shared):
    """Start a verb on a terminal; it is interrupted at the end of the test."""
    begun = []

    def start(verb, *args):
        begun.append(Pty(shared.argv(verb, *args)))
        return begun[-1]

    yield start
    for one in begun:
        one.close()


@pytest.fixture(scope="module")
def going_on(shared):
    """A training over mobile links, with steps made; its launcher has no terminal. For the last tests here."""
    bring_up(shared, "--profile", "mobile")
    launched = shared.start("launch", "--no-verify", *STEPS)
    try:
        eventually(lambda: (document(shared) or {"step": None})["step"], 90)
        yield shared, launched
    finally:
        if launched.poll() is None:
            launched.send_signal(signal.SIGINT)
        launched.communicate(timeout=90)


@pytest.fixture
def job(unshaped, tmp_path):
    """A program that runs until it is told to end: its launch arguments, and the function that ends it."""
    script = tmp_path / "job.py"
    script.write_text(UNTIL_ENDED)
    over = f"/tmp/{tmp_path.name}"

    def end():
        for node in ("node1", "node2", "node3"):
            unshaped.exec(node, "touch", over)

    return ["--", script, over], end


def document(cluster):
    """Return the state document of the run that is going on; None if there is none, or its launch was killed."""
    pointer = read_pointer(cluster.state_dir)
    if pointer is None or not pointer.is_alive:
        return None
    with suppress(OSError, ValueError):
        return json.loads((pointer.folder / "live.json").read_text())
    return None


def eventually_shown(terminal, pattern, timeout_s=90):
    return eventually(lambda: re.search(pattern, terminal.read()), timeout_s)


def test_a_launch_on_a_terminal_shows_steps_links_and_lines(mobile, on_terminal):
    shown = on_terminal("launch", "--no-verify", *STEPS)
    eventually_shown(shown, r"step [1-9]\d*/100000")
    for node in ("node1", "node2", "node3"):
        eventually_shown(shown, rf"{node} +\S*(computing|collective|waiting)")
    eventually_shown(shown, r"node1->node2 +\d+\.\d{3}")
    eventually_shown(shown, r"# computing \d+%")
    assert re.search(r"node1 \| ", shown.text)  # log lines scroll above the display
    resize(shown.slave, 15, 50)
    shown.process.send_signal(signal.SIGWINCH)
    time.sleep(3)
    shown.read()
    shown.process.send_signal(signal.SIGINT)
    assert shown.wait() == 130
    assert "Traceback" not in shown.text
    assert "\x1b[?1049h" not in shown.text  # no alternate screen: the scrollback stays
    assert shown.text.rfind("\x1b[?25h") >= shown.text.rfind("\x1b[?25l")
    assert termios.tcgetattr(shown.slave) == shown.before


def test_a_launcher_that_is_killed_leaves_the_terminal_in_order(unshaped, on_terminal, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SLEEP)
    shown = on_terminal("launch", "--", script)
    eventually_shown(shown, r"node3 +\S*waiting")
    os.killpg(shown.process.pid, signal.SIGKILL)
    shown.wait()
    assert shown.text.rfind("\x1b[?25h") >= shown.text.rfind("\x1b[?25l")
    assert termios.tcgetattr(shown.slave) == shown.before
    done = unshaped.run("watch", check=1)
    assert "no run is going on" in done.stderr
    eventually(lambda: not unshaped.exec("node2", "pgrep", "-f", "node.telemetry", check=False), 30)


@pytest.mark.slow
def test_plain_and_pipes_have_lines_alone(unshaped, on_terminal, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import time\nprint('words')\ntime.sleep(3)\n")
    shown = on_terminal("launch", "--plain", "--", script)
    assert shown.wait() == 0
    plain = COLOUR.sub("", shown.text)
    assert plain.count("| words") == 3
    assert "COMP %" not in plain
    done = unshaped.run("launch", "--", script)
    assert sorted(line for line in done.stdout.splitlines() if "| words" in line) == [
        "node1 | words",
        "node2 | words",
        "node3 | words",
    ]
    assert "\x1b" not in done.stdout + done.stderr and "COMP %" not in done.stdout + done.stderr


def test_who_looks_on_ends_with_the_run(unshaped, job):
    words, end = job
    launched = unshaped.start("launch", *words)
    eventually(lambda: (document(unshaped) or {}).get("phase") == "running", 60)
    watching = unshaped.start("watch", "--json")
    states = [parse_state(watching.stdout.readline()) for _ in range(3)]
    assert not any(state.is_over for state in states)
    end()
    launched.communicate(timeout=90)
    assert launched.returncode == 0
    said, _ = watching.communicate(timeout=10)
    assert watching.returncode == 0
    states = [parse_state(line) for line in said.splitlines()]
    assert states[-1].is_over
    assert [row.state for row in states[-1].ranks] == ["ended"] * 3
    assert "no run is going on" in unshaped.run("watch", "--once", check=1).stderr


@pytest.mark.parametrize("verb", ["launch", "watch"])
def test_the_page_answers_on_this_machine_and_ends(unshaped, job, verb):
    words, end = job
    page = ["--http", "0"]
    launched = unshaped.start("launch", *(page if verb == "launch" else []), *words)
    if verb == "watch":
        eventually(lambda: (document(unshaped) or {}).get("phase") == "running", 60)
    showing = launched if verb == "launch" else unshaped.start("watch", *page)
    line = showing.stderr.readline()
    while "http://127.0.0.1:" not in line:
        assert line, "it said nothing of a page"
        line = showing.stderr.readline()
    port = int(re.search(r"http://127.0.0.1:(\d+)/", line)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/")
    assert b"<title>gradwire" in connection.getresponse().read()
    connection.request("GET", "/events")
    events = connection.getresponse()
    seen, is_ended = [], False
    while line := events.readline():  # the stream ends with the run
        if line.startswith(b"data: {"):
            seen.append(parse_state(line[6:]))
            if seen[-1].lines and not is_ended:
                end()
                is_ended = True
    assert seen[-1].is_over and any(state.lines for state in seen)
    for process in {launched, showing}:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert listeners(port) == set()


def listeners(port):
    """Return the addresses with a listener on this port."""
    said = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True)
    return {line.split()[3] for line in said.stdout.splitlines()}


def test_a_node_that_is_paused_is_shown_as_silent(unshaped, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SLEEP)
    launched = unshaped.start("launch", "--", script)
    try:
        eventually(lambda: states(unshaped) == ["waiting"] * 3, 60)
        with paused(unshaped.container("node2")):
            eventually(lambda: states(unshaped) == ["waiting", "silent", "waiting"], 14)
    finally:
        launched.send_signal(signal.SIGINT)
        launched.communicate(timeout=90)


def states(cluster):
    return [rank["state"] for rank in (document(cluster) or {"ranks": []})["ranks"]]


@pytest.mark.slow
def test_without_it_no_node_is_asked(unshaped, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SLEEP)
    launched = unshaped.start("launch", "--no-live", "--", script)
    try:
        eventually(lambda: unshaped.exec("node2", "pgrep", "-f", "job.py", check=False), 60)
        time.sleep(3)
        assert not unshaped.exec("node2", "pgrep", "-f", "node.telemetry", check=False)
        assert "no run is going on" in unshaped.run("watch", check=1).stderr
        assert not (last_run(unshaped, "job") / "live.json").exists()
    finally:
        launched.send_signal(signal.SIGINT)
        launched.communicate(timeout=90)


@pytest.mark.slow
def test_telemetry_that_is_killed_on_a_node_fails_nothing(unshaped, job):
    words, end = job
    launched = unshaped.start("launch", *words)
    eventually(lambda: unshaped.exec("node2", "pgrep", "-f", "node.telemetry", check=False), 60)
    unshaped.exec("node2", "pkill", "-KILL", "-f", "node.telemetry", check=False)
    killed_at = time.time()
    eventually(lambda: document(unshaped)["time"] > killed_at + 2)  # the launcher still follows
    end()
    _, stderr = launched.communicate(timeout=90)
    assert launched.returncode == 0
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_another_shell_sees_the_run_within_two_seconds(going_on):
    cluster, _ = going_on
    factors, tried = [python_s() / QUICK_S], list[float]()
    for _ in range(3):  # a machine that stands still in one of them says nothing of the product
        started = time.monotonic()
        done = cluster.run("watch", "--once", "--json")
        tried.append(time.monotonic() - started)
        factors.append(python_s() / QUICK_S)
    print(f"watch: {tried} s; {factors} times as slow as a quick machine")
    assert min(tried) < ATTACHED_S * max(1.0, *factors)
    cluster.run("watch", "--once")
    state = parse_state(done.stdout)
    assert time.time() - state.time < 30  # the file is being written
    assert state.step > 0 and len(state.ranks) == 3 and len(state.links) == 6


def python_s():
    """Return how long a Python process that does nothing takes here."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import rich.live"], check=True)
    return time.monotonic() - started


def test_what_is_shown_is_what_the_kernels_say(going_on):
    cluster, _ = going_on
    first, least, most = shown_between(cluster)
    enough = max(10**7, 2 * (most - least))
    eventually(lambda: shown_bytes(cluster) > first + enough, 120)
    last, least_then, most_then = shown_between(cluster)
    print(f"shown {last - first:.0f} bytes; counted {least_then - most} to {most_then - least}")
    assert least_then - most <= last - first <= most_then - least
    assert first_link(cluster)["asked_mbyte_s"] > 1
    eventually(lambda: has_a_plausible_rate(first_link(cluster)))


def has_a_plausible_rate(link):
    """Return whether a link carries something, and not more than it can; after a silence its rate is unknown."""
    return link["mbyte_s"] is not None and link["mbyte_s"] < 1.5 * link["asked_mbyte_s"]


def first_link(cluster):
    """Return the state of node1 -> node3, which carries a ring all-reduce."""
    links = eventually(lambda: document(cluster), 30)["links"]
    return next(one for one in links if (one["src"], one["dst"]) == ("node1", "node3"))


def shown_bytes(cluster):
    return first_link(cluster)["sent_bytes"]


def shown_between(cluster):
    """Return the bytes shown, and the kernel's counter before and after the reading that they come from.

    The telemetry is niced, and a busy machine shows a reading seconds later. So three new readings must appear after
    the kernel was asked: one may have been under way, and one waits for the next state document.
    """
    least, seen = kernel_bytes(cluster), []

    def looks():
        shown = shown_bytes(cluster)
        if shown not in seen[-1:]:
            seen.append(shown)
        return len(seen)

    eventually(lambda: looks() > 3, 120)
    return seen[-1], least, kernel_bytes(cluster)


def kernel_bytes(cluster):
    shown = json.loads(cluster.exec("node1", "python3", "-m", "node.wire", "show"))
    return shown["counters"]["node3"]["sent_bytes"]


def test_killing_who_looks_on_leaves_the_run(going_on, on_terminal):
    cluster, launched = going_on
    for number in (signal.SIGINT, signal.SIGKILL):
        shown = on_terminal("watch")
        eventually_shown(shown, r"step [1-9]\d*/100000", 30)
        shown.process.send_signal(number)
        assert shown.wait() == (130 if number == signal.SIGINT else -9)
    assert launched.poll() is None
    before = document(cluster)["step"]
    eventually(lambda: document(cluster)["step"] > before)


def test_its_bytes_pass_no_link(going_on):
    """They go to the host, to which no node has a link, so the tc class for traffic of no link carries them."""
    cluster, _ = going_on
    said = cluster.exec("node2", "ss", "-Htn", "state", "established", "sport = :22")
    peers = {line.split()[3].rpartition(":")[0].strip("[]") for line in said.splitlines()}
    nodes = {node["address"] for node in cluster.json("status")["nodes"]}
    assert peers and not peers & nodes
