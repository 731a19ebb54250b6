"""Results of ranks are fetched even if one node sends something else; its own stay on that node, and are reported.

Nodes run users' code as root: in these tests it replaces the node's tar.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from containers import PREFIX, PROJECT_DIR, Gradwire, eventually, last_run, tear_down
from unpack_worker import peak_bytes

from cluster.reporting.read_run import read_run

RUNS = "/run/gradwire/runs"
# Every rank leaves a result. On node2, another program then answers when the result is fetched.
PROGRAM = """\
import os, pathlib, shutil, sys, time
place = pathlib.Path(os.environ["GRADWIRE_RUN_DIR"])
(place / "result.txt").write_text(os.environ["RANK"])
if os.environ["RANK"] == "1":
    tar = shutil.which("tar")
    os.rename(tar, tar + ".real")
    with open(tar, "w") as file:
        file.write('#!/bin/sh\\ncase "$*" in *-x*) exec tar.real "$@";; esac\\n' + {answer!r})
    os.chmod(tar, 0o755)
{then}
"""
# A symbolic link that leads out of the results, and a file behind it.
ESCAPE = """\
exec python3 -c "
import sys, tarfile
link, file = tarfile.TarInfo('x'), tarfile.TarInfo('x/escaped')
link.type, link.linkname = tarfile.SYMTYPE, '../../..'
sys.stdout.buffer.write(link.tobuf() + file.tobuf() + bytes(1024))
"
"""
ANSWERS = {
    "a bomb": ("head -c 300000000 /dev/zero | gzip\n", "what the node sent is no tar archive"),
    "nothing": ("exit 0\n", "tar ended with exit code 0"),
    "silence": ("exec sleep 1000\n", "the command has neither said nor taken anything for 15 s"),
    "an escape": (ESCAPE, "some files are missing"),
}


@pytest.fixture(scope="module")
def nodes(request):
    """A separate cluster, because these tests damage its nodes."""
    cluster = Gradwire(PREFIX + "results")
    cluster.run("down")
    cluster.run("up", "--nodes", "3")
    yield cluster
    tear_down(cluster, request)


@pytest.fixture
def cluster(nodes):
    """The same cluster with its tar restored and no results left behind."""
    mend(nodes)
    for node in ("node1", "node2", "node3"):
        nodes.exec(node, "sh", "-c", f"rm -rf {RUNS}/*")
    return nodes


def mend(cluster):
    cluster.exec("node2", "sh", "-c", "cd /usr/bin; [ ! -e tar.real ] || mv tar.real tar")


@pytest.fixture
def script(tmp_path):
    def write(answer, then=""):
        path = tmp_path / "job.py"
        path.write_text(PROGRAM.format(answer=answer, then=then))
        return path

    return write


def write(folder, name, *lines):
    path = folder / f"{name}.py"
    head = "import os, pathlib\nplace = pathlib.Path(os.environ['GRADWIRE_RUN_DIR'])\n"
    path.write_text(head + "\n".join(lines) + "\n")
    return path


def results(run_folder):
    files = (path for path in (run_folder / "files").rglob("*") if path.is_file())
    return {str(path.relative_to(run_folder / "files")): path.read_text() for path in files}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.slow if one == "silence" else ()) for one in ANSWERS],
)
def test_what_one_node_sends_costs_no_other_and_stays_there(cluster, script, tmp_path, kind):
    answer, words = ANSWERS[kind]
    began = time.monotonic()
    done = cluster.run("launch", "--json", "--", script(answer), check=1)
    assert time.monotonic() - began < 60
    summary = json.loads(done.stdout)
    folder = Path(summary["folder"])
    there = f"{RUNS}/{folder.name}"
    assert f"node2: what its ranks left could not be fetched: {words}" in done.stderr
    assert f"on node2, in {there}" in done.stderr
    assert results(folder) == {"node1/result.txt": "0", "node3/result.txt": "2"}
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert (summary["status"], list(summary["not_fetched"])) == ("done", ["node2"])
    assert "could not all be fetched: node2" in summary["failure"]
    assert read_run(folder).status == "failed"
    assert cluster.exec("node2", "cat", f"{there}/result.txt") == "1"
    assert cluster.exec("node1", "ls", RUNS) == ""
    assert not list(PROJECT_DIR.glob("**/escaped"))
    mend(cluster)
    told = cluster.run("launch", "--", write(tmp_path, "next", "pass"))
    assert (
        f"node2 | results of an earlier run were never fetched, they are in {there}" in told.stdout
    )
    assert "node1 | results" not in told.stdout


def test_an_interrupted_run_brings_home_what_the_others_left(cluster, script):
    words = ("launch", "--", script(ANSWERS["a bomb"][0], "time.sleep(600)"))
    launched = cluster.start(*words)
    for node in ("node1", "node3"):
        eventually(
            lambda node=node: cluster.exec(
                node, "sh", "-c", f"cat {RUNS}/*/result.txt", check=False
            )
        )
    replaced = "[ -e /usr/bin/tar.real ] && [ -x /usr/bin/tar ] && echo yes"
    eventually(lambda: cluster.exec("node2", "sh", "-c", replaced, check=False))
    launched.send_signal(signal.SIGINT)
    _, stderr = launched.communicate(timeout=60)
    assert launched.returncode == 130
    assert "node2: what its ranks left could not be fetched" in stderr
    assert results(last_run(cluster, "job")) == {"node1/result.txt": "0", "node3/result.txt": "2"}


def test_what_a_killed_launcher_did_not_fetch_is_there_and_told(cluster, tmp_path):
    lines = ["(place / 'model.pt').write_text('weights')", "import time", "time.sleep(600)"]
    launched = cluster.start("launch", "--", write(tmp_path, "killed", *lines))
    find = ("sh", "-c", f"cat {RUNS}/*/model.pt")
    eventually(lambda: cluster.exec("node3", *find, check=False) == "weights")
    os.killpg(launched.pid, signal.SIGKILL)
    launched.communicate()
    kept = last_run(cluster, "killed").name
    asked = ("node3", "pgrep", "-f", "killed.py")
    eventually(lambda: not cluster.exec(*asked, check=False), every_s=0.5)
    done = cluster.run("launch", "--", write(tmp_path, "next", "pass"))
    assert f"node3 | results of an earlier run were never fetched, they are in {RUNS}/{kept}" in (
        done.stdout
    )
    assert cluster.exec("node3", *find) == "weights"


def test_a_file_larger_than_the_limit_stays_and_the_others_come(cluster, tmp_path):
    """A sparse file of 1 TB needs no space on the node; fetching it would take an hour and fill this disk."""
    lines = [
        "(place / 'result.txt').write_text('x')",
        "if os.environ['RANK'] == '2': os.truncate(os.open(place / 'a', os.O_CREAT | os.O_RDWR), 10**12)",
    ]
    program = write(tmp_path, "large", *lines)
    began = time.monotonic()
    done = cluster.run("launch", "--json", "--max-results", "50m", "--", program, check=1)
    assert time.monotonic() - began < 60
    assert "they are more than the limit of 52.4288 MB" in done.stderr
    folder = Path(json.loads(done.stdout)["folder"])
    assert results(folder) == {"node1/result.txt": "x", "node2/result.txt": "x"}
    assert "result.txt" in cluster.exec("node3", "ls", f"{RUNS}/{folder.name}")


def test_a_full_disk_of_ours_costs_the_large_results_and_nothing_else(cluster, tmp_path):
    """The runs folder is a disk of 20 MB: the 40 MB of node2 do not fit, the 1 and 12 MB of the others do."""
    lines = [
        "size = {'0': 1, '1': 40, '2': 12}[os.environ['RANK']] * 10**6",
        "(place / 'result.bin').write_bytes(bytes(size))",
    ]
    argv = cluster.argv("launch", "--json", "--", write(tmp_path, "fill", *lines))
    words = 'mount -t tmpfs -o size=20m none runs; "$@"; code=$?; cat runs/*/summary.json; du -ab runs; exit $code'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", words, "sh", *argv],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "node2: what its ranks left could not be fetched: no room on this machine's disk" in (
        done.stderr
    )
    said, _, rest = done.stdout.partition("\n}\n")
    written, _, sizes = rest.partition("\n}\n")
    assert json.loads(said + "}") == json.loads(written + "}")  # summary.json is whole
    assert list(json.loads(said + "}")["not_fetched"]) == ["node2"]
    found = {
        line.split()[1].partition("/files/")[2]: line.split()[0] for line in sizes.splitlines()
    }
    assert found["node1/result.bin"] == "1000000"
    assert found["node3/result.bin"] == "12000000"
    assert "node2" not in found


def test_results_take_little_memory_however_large_they_are(cluster, tmp_path):
    mbyte = 150
    line = f"os.truncate(os.open(place / 'x', os.O_CREAT | os.O_RDWR), {mbyte} * 10**6)"
    small = peak_of(cluster, write(tmp_path, "small", "pass"))
    large = peak_of(cluster, write(tmp_path, "much", line))
    sizes = [path.stat().st_size for path in last_run(cluster, "much").glob("files/*/x")]
    assert sizes == [mbyte * 10**6] * 3
    assert large - small < 0.1 * sum(sizes), (small, large)
    for path in last_run(cluster, "much").glob("files/*/x"):
        path.unlink()


def peak_of(cluster, program):
    """Return the peak memory of a launch."""
    launched = subprocess.Popen(
        cluster.argv("launch", "--", program),
        cwd=PROJECT_DIR,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while launched.poll() is None:
        try:
            peak = max(peak, peak_bytes(launched.pid))
        except (OSError, TypeError):
            pass  # the launch has just ended
        time.sleep(0.02)
    assert launched.returncode == 0
    return peak


def test_the_summary_is_json_whatever_metrics_the_ranks_leave(cluster, tmp_path):
    """A training that diverges, truncated lines, figures of the wrong type, ranks that do not exist."""
    sums = {"kind": "x", "purpose": "x", "bytes": 8, "count": 1, "waited_s": 0.0}
    lied = sums | {"to": {"77": {"bytes": 8, "messages": 1}}}
    end = {"steps": 1, "seconds": {"comm": 1.0, "total": 1.0}, "final_loss": float("nan")}
    ends = {"0": end | {"collectives": []}, "1": end | {"collectives": [lied]}, "2": [1]}
    lines = [
        "import json",
        "rank = os.environ['RANK']",
        "head = {'rank': int(rank), 'time': 1.0}",
        f"end = json.loads({json.dumps(json.dumps(ends))})[rank]",
        "file = (place / 'metrics.jsonl').open('w')",
        "print(json.dumps({'event': 'start'} | head), file=file)",
        "print(json.dumps({'event': 'end'} | head | end) if rank != '2' else end, file=file)",
        'print(\'{"event": "end", "rank": 0, "time": 1, "cut": {}\', file=file)',
        "(place / 'collectives.jsonl').mkdir()",
        "(place / 'real.pt').write_text('weights')",
        "(place / 'model.pt').symlink_to('real.pt')",
    ]
    done = cluster.run("launch", "--json", "--", write(tmp_path, "lies", *lines))
    summary = json.loads(done.stdout, parse_constant=pytest.fail)
    folder = Path(summary["folder"])
    text = (folder / "summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == summary
    assert (summary["steps"], summary["final_loss"]) == (1, None)
    assert "no accounting: the records of the ranks are inconsistent" in done.stderr
    assert (folder / "model.pt").read_text() == "weights"
    assert not (folder / "model.pt").is_symlink()


def test_a_size_that_is_none_is_refused_before_anything_starts(cluster, tmp_path):
    words = ("--max-results", "plenty", "--", write(tmp_path, "next", "pass"))
    assert "--max-results is 'plenty'" in cluster.run("launch", *words, check=2).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")
def test_runs_that_cannot_be_written_are_told_before_anything_is_started(tmp_path):
    """No cluster is brought up either: the named one is down, and stays down."""
    cluster = Gradwire(PREFIX + "nowhere")
    argv = cluster.argv("launch", "--", write(tmp_path, "next", "pass"))
    words = 'mount -t tmpfs -o ro none runs; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", words, "sh", *argv],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "runs cannot be written: Read-only file system" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert cluster.things() == []
