"""Real containers for the tests: the command line as a user types it, on clusters with names of their own.

Every name starts with PREFIX, so that a user's cluster is left alone, and so are those of another checkout's tests and
of other pytest-xdist workers. If a test fails, the nodes' logs are kept under runs/failed-tests/; E2E_KEEP=1 also keeps
the containers running. E2E_WIRE=netem (or nfqueue) is the wire of all links for which a test names none.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked import run_forked

from cluster.base.spec import project_name

PROJECT_DIR = Path(__file__).resolve().parents[2]
ARTIFACTS = PROJECT_DIR / "runs" / "failed-tests"
TIMEOUT_S = 480  # no command takes this long, however busy the machine: one that does hangs
CHECKOUT = hashlib.sha256(str(PROJECT_DIR).encode()).hexdigest()[:4]
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")  # gw0, gw1, …
PREFIX = f"t{CHECKOUT}{WORKER}-"
WIRE = os.environ.get("E2E_WIRE", "")
# For a test that names its slot: above those that `up` takes by itself, and distinct for 25 checkouts of two workers.
OWN_SLOT = 50 + 2 * (int(CHECKOUT, 16) % 25) + int(WORKER[2:] or 0) % 2


class Gradwire:
    """Runs `python -m cluster.VERB … --name NAME` for one cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._started: list[subprocess.Popen[str]] = []

    def argv(self, verb, *args):
        own = ["--name", self.name]
        words = [str(arg) for arg in args]
        split = words.index("--") if "--" in words else len(words)
        if WIRE and "--profile" in words[:split] and "--wire" not in words:
            own += ["--wire", WIRE]
        return [sys.executable, "-m", f"cluster.{verb}", *words[:split], *own, *words[split:]]

    def run(self, verb, *args, check=0, timeout_s=TIMEOUT_S, **popen):
        """Run a verb to its end; its exit code must be `check`, or may be any if that is None.

        With another folder or environment, it runs in a Python of its own.
        """
        argv = self.argv(verb, *args)
        if popen:
            popen = {"cwd": PROJECT_DIR, "timeout": timeout_s} | popen
            done = subprocess.run(argv, capture_output=True, text=True, **popen)
        else:
            done = run_forked(argv[2], argv[3:], timeout_s)
        said = f"exit {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        assert check in (None, done.returncode), said
        assert "this is a bug in gradwire" not in done.stderr, said
        return done

    def json(self, verb, *args, check=0):
        """Run a verb with --json; return the document on standard output."""
        return json.loads(self.run(verb, "--json", *args, check=check).stdout)

    def start(self, verb, *args, stdin=None):
        """Start a verb and leave it running, in its own process group."""
        started = subprocess.Popen(
            self.argv(verb, *args),
            cwd=PROJECT_DIR,
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
        self._started.append(started)
        return started

    def end_started(self):
        """Kill what a failed test left running."""
        while self._started:
            started = self._started.pop()
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.communicate()

    def exec(self, node, *argv, check=True):
        """Run `docker exec`, which bypasses the tool; return the output."""
        done = subprocess.run(
            ["docker", "exec", self.container(node), *argv],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_exec(self, node, *argv):
        """Start a `docker exec`, and leave it running."""
        return subprocess.Popen(
            ["docker", "exec", self.container(node), *argv],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def container(self, node):
        """Return Docker's name of a node's container."""
        return f"{project_name(self.name)}-{node}"

    def ssh(self, node, *argv):
        """Run the plain OpenSSH client with the generated configuration."""
        config = self.state_dir / "ssh_config"
        return subprocess.run(
            ["ssh", "-F", str(config), node, *argv],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    @property
    def state_dir(self):
        return PROJECT_DIR / ".gradwire" / self.name

    @property
    def label(self):
        """The filter with which `docker … --filter` finds what belongs to this cluster."""
        return f"label=gradwire.cluster={self.name}"

    def things(self):
        """Return all that is left of this cluster in Docker and on disk."""
        asked = [
            ["docker", "ps", "--all", "--quiet", "--filter", self.label],
            ["docker", "network", "ls", "--quiet", "--filter", self.label],
            ["docker", "volume", "ls", "--quiet", "--filter", self.label],
        ]
        found = [line for argv in asked for line in output(argv).splitlines()]
        return found + ([str(self.state_dir)] if self.state_dir.exists() else [])


def last_run(cluster, program):
    """Return the newest run folder of this program on this cluster; other clusters' runs may be beside it."""
    found = (PROJECT_DIR / "runs").glob(f"*-{program}*/run.yml")
    ours = [path.parent for path in found if f"name: {cluster.name}\n" in path.read_text()]
    return max(ours)


def losses(cluster):
    """Return the losses of its last run, by rank and step."""
    files = sorted((last_run(cluster, "") / "metrics").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def hear_interrupts():
    """Restore SIGINT, which is ignored if these tests run in the background, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def output(argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def eventually(condition, timeout_s=TIMEOUT_S, every_s=0.1):
    """Wait until a condition holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
    return value


def pause(container):
    """Retry `docker pause` until it works: cgroup v1's freezer gives up while a process waits in the kernel."""
    argv = ["docker", "pause", container]
    eventually(lambda: subprocess.run(argv, capture_output=True).returncode == 0)


@contextmanager
def paused(container):
    """Pause a container during the block; a test may have resumed or removed it meanwhile."""
    pause(container)
    try:
        yield
    finally:
        subprocess.run(["docker", "unpause", container], capture_output=True)


@pytest.fixture
def make_cluster(request):
    """A function that makes Gradwires for clusters of one test; they are removed afterwards."""
    made = []

    def make(name):
        made.append(Gradwire(PREFIX + name))
        return made[-1]

    yield make
    for cluster in made:
        tear_down(cluster, request)


@pytest.fixture(scope="session")
def shared(request):
    """One cluster of three nodes, up for the whole session; each test shapes it as it needs."""
    cluster = Gradwire(PREFIX + "shared")
    cluster.run("down", "--force")
    cluster.run("up", "--nodes", "3")
    yield cluster
    tear_down(cluster, request)


@pytest.fixture
def unshaped(shared):
    """The shared cluster, complete and without shaping."""
    if bring_up(shared)["links"]:
        shared.run("shape", "--clear")
    return shared


@pytest.fixture
def mobile(shared):
    """The shared cluster, complete and shaped as mobile, seed 1."""
    bring_up(shared, "--profile", "mobile")
    return shared


def bring_up(cluster, *words):
    """Bring up three nodes; what a failed test left running must not make the next one fail."""
    cluster.end_started()
    done = cluster.run("up", "--json", "--nodes", "3", *words, check=None)
    if done.returncode == 0:
        return json.loads(done.stdout)
    cluster.run("down", "--force")
    return cluster.json("up", "--nodes", "3", *words)


def tear_down(cluster, request):
    cluster.end_started()
    if request.session.testsfailed:
        keep_logs(cluster)
        if os.environ.get("E2E_KEEP"):
            return
    cluster.run("down", "--force")


def keep_logs(cluster):
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for name in output(
        [
            "docker",
            "ps",
            "-a",
            "--format",
            "{{.Names}}",
            "--filter",
            f"label=gradwire.cluster={cluster.name}",
        ]
    ).split():
        log = subprocess.run(["docker", "logs", name], capture_output=True, text=True)
        (ARTIFACTS / f"{name}.log").write_text(log.stdout + log.stderr)
    if cluster.state_dir.exists():
        shutil.copy(cluster.state_dir / "ssh_config", ARTIFACTS / f"{cluster.name}.ssh_config")
