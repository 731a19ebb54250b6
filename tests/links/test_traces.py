"""Traces on real containers: programs get the trace's values; links are restored, however the replay ends."""

import json
import signal
import time
from statistics import median

import pytest
from containers import TIMEOUT_S, eventually
from test_schedule import read_events

NEAR = "rate_mbyte_s: 4\ndelay_ms: 5\n"
# node1 sends datagrams to node2 as fast as possible; node2 prints the MB/s that arrive, five times a second. It counts
# what its device received: on a busy processor it reads late, and its socket would overflow.
FLOOD = """\
import os, socket, time
from itertools import pairwise
from pathlib import Path
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if os.environ["RANK"] == "1":
    here.bind(("", 9999))
    received, looks = Path("/sys/class/net/eth0/statistics/rx_bytes"), []
    for _ in range(60):
        looks.append((time.monotonic(), int(received.read_text())))
        time.sleep(0.2)
    print("came", *((b - a) / (t - s) / 1e6 for (s, a), (t, b) in pairwise(looks)), flush=True)
elif os.environ["RANK"] == "0":
    deadline = time.monotonic() + 12
    while time.monotonic() < deadline:
        try:
            here.sendto(bytes(1400), ("node2", 9999))
        except OSError:
            time.sleep(0.001)
"""


@pytest.fixture
def near(shared, tmp_path):
    """The shared cluster with links of 4 MB/s and 5 ms, and a folder for traces."""
    profile = tmp_path / "near.yml"
    profile.write_text(NEAR)
    # What a failed test left running: it may be made again because the host was busy.
    shared.end_started()
    shared.run("up", "--nodes", "3")
    eventually(lambda: not shared.json("status")["replayed"])
    shared.json("shape", "--profile", profile)
    return shared


def write_trace(folder, header, *rows):
    path = folder / "trace.csv"
    path.write_text("".join(f"{line}\n" for line in (header, *rows)))
    return path


def links_of(cluster):
    return cluster.json("status")["links"]


def ping_ms(cluster, count=3):
    said = cluster.exec("node1", "ping", "-q", "-c", str(count), "-i", "0.1", "node2")
    return float(said.rsplit("=", 1)[1].split("/")[1])


def kernel(cluster, node):
    """Return a node's tc classes and qdiscs, and its replay processes."""
    return [
        cluster.exec(node, "tc", "class", "show", "dev", "eth0"),
        cluster.exec(node, "tc", "qdisc", "show"),
        cluster.exec(node, "pgrep", "-f", "node.wire replay", check=False),
    ]


@pytest.mark.slow
def test_a_stepwise_rate_is_what_a_program_gets(near, tmp_path):
    write_trace(tmp_path, "time_s,rate_mbyte_s", "0,2", "2,0.5", "4,0", "5,2")
    script, schedule = tmp_path / "flood.py", tmp_path / "steps.yml"
    script.write_text(FLOOD)
    # Both programs need some time to start on a busy machine; until then the link has 4 MB/s.
    schedule.write_text("- {at: 3s, trace: trace.csv, link: node1:node2}\n")
    before = links_of(near)
    done = near.run("launch", "--json", "--no-verify", "--schedule", schedule, "--", script)
    (line,) = [line for line in done.stderr.splitlines() if "| came" in line]
    rates = [float(word) for word in line.split("came")[1].split()]
    fast = [at for at, rate in enumerate(rates) if 1.5 < rate < 2.5]
    slow = [at for at, rate in enumerate(rates) if 0.35 < rate < 0.65 and at > fast[0]]
    still = [at for at, rate in enumerate(rates) if rate < 0.05 and at > fast[0]]
    assert len(fast) >= 8 and len(slow) >= 8 and len(still) >= 3, rates
    assert slow[0] < still[0] < fast[-1], rates
    begun, ended = read_events(near, json.loads(done.stdout))
    assert begun["what"] == "at: 3s, trace: trace.csv, link: node1:node2"
    assert ended["what"] == f"over: {begun['what']}"
    assert ended["changes"] == 4
    # The last value lasts one more second; then the node starts a program, which takes as long as the host needs.
    assert 6 <= ended["after_s"] - begun["after_s"] < 7 + begun["took_s"] + ended["took_s"]
    assert links_of(near) == before


def test_a_delay_comes_and_goes_and_the_run_remembers_the_trace(near, tmp_path):
    write_trace(tmp_path, "time_s,delay_ms", "0,60", "0.5,60")
    script, schedule = tmp_path / "far.py", tmp_path / "far.yml"
    script.write_text(
        "import os, subprocess\n"
        "if os.environ['RANK'] == '0':\n"
        "    subprocess.run('ping -i 0.2 -c 45 node2'.split())\n"
    )
    schedule.write_text(
        "- {at: 4s, trace: trace.csv, link: node1:node2, loop: true, for: 1500ms}\n"
        "- {at: 4500ms, profile: wan, for: 500ms}\n"  # beneath the trace: changes the way back, not the way there
    )
    done = near.run("launch", "--json", "--no-verify", "--schedule", schedule, "--", script)
    far = [
        float(line.split("time=")[1].split()[0])
        for line in done.stderr.splitlines()
        if "time=" in line
    ]
    # On a busy host, one ping can be late by more than the link's own delay, so medians are compared before and
    # after. Nor does a rank start exactly when the schedule does: on a slow machine two seconds later. Of 20 pings in
    # 4 s, the first ones are before the trace in any case.
    assert median(far[:3]) == pytest.approx(10, abs=2), far
    assert median(far[-9:]) == pytest.approx(10, abs=2), far
    assert len([ms for ms in far if 64 < ms < 67]) >= 2, far
    first = next(index for index, ms in enumerate(far) if ms > 60)
    assert min(far[first : first + 6]) > 60, far  # also while the profile changes
    run = near.state_dir.parents[1] / "runs" / json.loads(done.stdout)["run"]
    words = (run / "run.yml").read_text()
    assert "file: trace.csv" in words and "sha256: " in words and "node1->node2" in words


@pytest.mark.slow
def test_twenty_changes_a_second_are_kept(near, tmp_path):
    """A busy machine's late changes are reported; nearly all are made, so the mean round trip is the trace's."""
    rows = (f"{n * 0.05:g},{1 + n % 2},{10 + n % 7}" for n in range(160))
    trace = write_trace(tmp_path, "time_s,rate_mbyte_s,delay_ms", *rows)
    words = ("--link", "node1:node2", "--both", "--trace", trace)
    playing = near.start("shape", "--json", *words)
    eventually(lambda: ping_ms(near, count=1) > 15)  # it has begun, and lasts 8 s
    mean_ms = ping_ms(near, count=28)  # 2.8 s: eight times the seven delays
    stdout, stderr = playing.communicate(timeout=TIMEOUT_S)
    assert playing.returncode == 0, stderr
    assert mean_ms == pytest.approx(2 * 13, abs=1)
    said = json.loads(stdout)["trace"]
    assert said["changes"] == 160 and said["links"] == ["node1->node2", "node2->node1"]
    print("late", said["late"], "worst_ms", said["worst_ms"])
    assert said["late"] <= 32


@pytest.mark.slow
def test_a_trace_by_hand_until_it_is_interrupted(near, tmp_path):
    before, kernels = links_of(near), [kernel(near, node) for node in ("node1", "node2")]
    trace = write_trace(tmp_path, "time_s,rate_mbyte_s,delay_ms", "0,1,70", "0.3,0.9,71")
    words = ("shape", "--link", "node1:node2", "--trace", trace, "--loop")
    playing = near.start(*words)
    status = eventually(lambda: (s := near.json("status")) and s["replayed"] and s)
    assert status["replayed"] == [["node1", "node2"]] and status["links"] == before
    assert "traces change node1 -> node2" in " ".join(status["notes"])
    assert ping_ms(near) == pytest.approx(75.5, abs=2)
    for others in (
        ("verify",),
        ("shape", "--profile", "wan"),
        words,
    ):  # all refused, without a partial change
        assert "traces" in near.run(*others, check=1).stderr
    assert near.json("status")["links"] == before
    playing.send_signal(signal.SIGINT)
    _, stderr = playing.communicate(timeout=TIMEOUT_S)
    assert playing.returncode == 130, stderr
    assert links_of(near) == before
    assert [kernel(near, node) for node in ("node1", "node2")] == kernels
    assert ping_ms(near) == pytest.approx(10, abs=2)


@pytest.mark.slow
def test_the_host_is_killed_and_the_links_go_back(near, tmp_path):
    before, kernels = links_of(near), [kernel(near, node) for node in ("node1", "node2")]
    trace = write_trace(tmp_path, "time_s,rate_mbyte_s,delay_ms", "0,1,70", "0.3,0.9,71")
    playing = near.start("shape", "--link", "node1:node2", "--trace", trace, "--loop")
    eventually(lambda: near.json("status")["replayed"])
    playing.kill()
    playing.communicate()
    eventually(lambda: not near.json("status")["replayed"])
    time.sleep(0.5)
    assert [kernel(near, node) for node in ("node1", "node2")] == kernels
    status = near.json("status")
    assert (status["links"], status["notes"]) == (before, [])


@pytest.mark.slow
def test_deliveries_as_mahimahi_has_them(near, tmp_path):
    """Ten packets of 1500 bytes per 100 ms for half a second of two; then an outage until the last packet."""
    trace = tmp_path / "cell.down"
    moments = [n * 10 for n in range(50)] + [2000]
    trace.write_text("".join(f"{moment}\n" for moment in moments))
    sent = near.start("shape", "--json", "--link", "node1:node2", "--trace", trace, "--for", "5s")
    eventually(lambda: near.json("status")["replayed"])
    rates = set()
    deadline = time.monotonic() + 3.5
    while time.monotonic() < deadline:
        classes = json.loads(near.exec("node1", "tc", "-json", "class", "show", "dev", "eth0"))
        rates.add(min(row["rate"] for row in classes if row["class"] == "htb"))
    stdout, stderr = sent.communicate(timeout=TIMEOUT_S)
    assert sent.returncode == 0, stderr
    assert any(rate == pytest.approx(151_400, abs=2) for rate in rates)
    assert min(rates) < 8_000  # the outage: one packet in the rest of the trace
    assert json.loads(stdout)["trace"]["file"] == "cell.down"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trace", "none.csv"), "no trace none.csv"),
        (("--trace", "examples/ride.csv", "--delay", "3"), "a trace is for --link"),
        (("--loop", "--delay", "3"), "--loop is for --trace"),
    ],
)
def test_what_cannot_be_played_changes_nothing(near, words, said):
    before = links_of(near)
    assert said in near.run("shape", "--link", "node1:node2", *words, check=2).stderr
    unknown = ("shape", "--link", "node1:node9", "--trace", "examples/ride.csv")
    assert "unknown link 'node1:node9'" in near.run(*unknown, check=2).stderr
    assert links_of(near) == before
