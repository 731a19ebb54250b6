"""Plays one fault on a cluster of its own, and names each of these four obligations that was violated.

1. The command ended within its time limit; if it failed, its error named the cause and the node in one line.
2. Finished results are intact: those of the run before, and those that ranks of this one left, here or on their nodes.
3. The next `up` and the next `launch` work.
4. `down` leaves nothing.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos_faults import (
    MEMORY,
    RUNS_THERE,
    Heal,
    Missed,
    docker,
    fill_disk_of_node,
    nothing,
    small_disk,
    small_files,
    strike,
    why_not,
)
from chaos_plan import KINDS, Fault
from containers import PROJECT_DIR, Gradwire, hear_interrupts

from cluster.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE

RANKS = Path(__file__).with_name("chaos_ranks.py")
RUNS = PROJECT_DIR / "runs"
# If nodes do not come up: START_TIMEOUT_S of cluster/lifecycle/provision.py, and the time to remove them.
BOUND_S = {"up": 160, "shape": 60, "verify": 60, "launch": 90, "down": 60}
NEXT_BOUND_S = 60
# How long a phase lasts: a fault is injected at a random moment of it.
LASTS_S = {"up anew": 1.3, "up again": 1.0, "shape": 0.9, "verify": 3.5, "down": 1.0}
LASTS_S |= {"launch starting": 1.2, "launch measuring": 4.0, "launch running": 0.5}
LASTS_S |= {"launch fetching": 0.5}
BEGINS = {
    "launch measuring": "contract: ",
    "launch running": "| ready",
    "launch fetching": "| left",
}
# For these, nothing shows which node was hit.
NAMELESS = ("links cut", "dockerd restarted")
TRACES = ("Traceback (most recent call last)", "this is a bug in gradwire")
OF_RANKS = re.compile(r"(node\d+|  )\s*\| ")  # output of the ranks themselves


class Command:
    """A running verb, and its output so far."""

    def __init__(self, argv: list[str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            argv,
            cwd=PROJECT_DIR,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def await_words(self, words: str, times: int, timeout_s: float) -> bool:
        """Return whether the words appear this many times before the command ends or the timeout expires."""
        deadline = time.monotonic() + timeout_s
        while sum(words in line for line in list(self.lines)) < times:
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self, timeout_s: float) -> int | None:
        """Return its exit code; None if it did not end in time."""
        try:
            code: int | None = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            code = None
        self._reader.join(5)
        if not self._reader.is_alive():  # otherwise a child of the command still has the pipe open
            self.process.stdout.close()
        return code


@dataclass
class Played:
    """The outcome of a fault."""

    fault: Fault
    outcome: str = ""
    why: str = ""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        """Return its line of the file of played faults."""
        return asdict(self)


class Stage:
    """Plays faults one after another, on a cluster of this name; keeps the last run to see that it stays intact.

    Args:
        name: the cluster's name; any cluster of that name is removed after each fault.
        folder: a folder of its own, for the program that ranks run.
        stretch: how many times longer than `LASTS_S` phases last on this machine.
    """

    def __init__(self, name: str, folder: Path, stretch: float = 1.0) -> None:
        self.cluster, self._folder, self._stretch = Gradwire(name), folder, stretch
        self._near = folder / "near.yml"
        self._near.write_text("rate_mbyte_s: 8\ndelay_ms: 5\n")
        self._far = folder / "far.yml"
        self._far.write_text("rate_mbyte_s: 6\ndelay_ms: 8\n")
        self._program = folder / "program" / "chaos_ranks.py"
        self._program.parent.mkdir()
        shutil.copy(RANKS, self._program)
        self._before: Path | None = None
        self._hashes: dict[str, str] = {}

    def play(self, fault: Fault) -> Played:
        """Play a fault, check the obligations, and take the cluster down."""
        played, began = Played(fault), time.monotonic()
        if why := why_not(fault):
            played.outcome, played.why = "skipped", why
            return played
        try:
            self._set_up(fault)
            runs = self._runs()
            self._play(fault, played)
            self._check_results(played, self._runs() - runs)
            self._check_next(played)
        except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
            played.violations.append(f"{type(error).__name__}: {error}"[-1500:])
        self._check_down(played)
        played.seconds = round(time.monotonic() - began, 1)
        played.outcome = "violated" if played.violations else played.outcome
        return played

    def close(self) -> None:
        """Remove the cluster, if there is one, and the last run."""
        self.cluster.run("down", check=None, timeout_s=NEXT_BOUND_S)
        if self._before:
            shutil.rmtree(self._before, ignore_errors=True)

    def _set_up(self, fault: Fault) -> None:
        memory = ["--memory", MEMORY] if fault.kind == "rank out of memory" else []
        if fault.phase != "up anew":
            words = ["--nodes", 2, "--profile", self._near, *memory]
            self.cluster.run("up", *words, timeout_s=NEXT_BOUND_S)

    def _play(self, fault: Fault, played: Played) -> None:
        """Run the command, and inject the fault while it runs."""
        heal: Heal | None = nothing
        keep = Path(tempfile.mkdtemp(dir=self._folder))
        if fault.kind == "node's disk full":
            heal = fill_disk_of_node(self.cluster, fault.node, 100)
        command = Command(self._argv(fault, keep))
        try:
            has_struck = self._await_phase(fault, command)
            if has_struck and "disk full" not in fault.kind:
                heal = self._strike(fault, command)
                has_struck = heal is not None
            code = command.end(BOUND_S[fault.verb])
        except BaseException:
            # The fault could not be injected: the next one must not meet this command.
            command.end(0)
            raise
        finally:
            (heal or nothing)()
        played.why = _said(command.lines)
        played.outcome = _outcome(code) if has_struck else "came too late"
        played.violations += _judge(fault, code, command.lines, has_struck=has_struck)
        for folder in keep.iterdir():
            self._check_run(played, folder)

    def _strike(self, fault: Fault, command: Command) -> Heal | None:
        """Inject the fault once its target exists; return how to revert it, None if the command ended before."""
        while command.process.poll() is None:
            try:
                return strike(fault, self.cluster, command.process)
            except Missed:
                time.sleep(0.05)
        return None

    def _argv(self, fault: Fault, keep: Path) -> list[str]:
        argv = self.cluster.argv(fault.verb, *self._words(fault))
        if fault.kind == "disk full" and fault.verb == "launch":
            return small_disk(argv, 16 + round(3000 * fault.moment), str(keep))
        if fault.kind == "disk full":
            return small_files(argv, round(2000 * fault.moment))
        return argv

    def _words(self, fault: Fault) -> list[object]:
        """Return the command line after the verb."""
        if fault.phase == "up anew":
            return ["--nodes", 2, "--profile", self._near]
        if fault.phase in ("up again", "shape"):
            return ["--profile", self._far]
        if fault.verb != "launch":
            return ["--quick"] if fault.verb == "verify" else []
        verify = [] if fault.phase == "launch measuring" else ["--no-verify"]
        restarts = fault.kind == "rank killed, started again"
        kept = ["--essential-ranks", "0" if fault.node == "node2" else "1", "--max-restarts", 1]
        mode = "alone" if restarts else "ring"
        large = fault.phase == "launch fetching"
        program = ["--", self._program, mode, 0.2 if large else 2, 20000 if large else 1000]
        return [*verify, "--stall-timeout", "10s", *(kept if restarts else []), *program]

    def _await_phase(self, fault: Fault, command: Command) -> bool:
        """Wait for the moment of the fault; return whether it came: a launch may end before."""
        words = BEGINS.get(fault.phase)
        times = 1 if fault.phase == "launch measuring" else 2
        if words and not command.await_words(words, times, 60):
            return False
        time.sleep(fault.moment * LASTS_S[fault.phase] * self._stretch)
        return command.process.poll() is None

    def _runs(self) -> set[Path]:
        """Return the run folders of this cluster."""
        own = f"name: {self.cluster.name}\n"
        found = RUNS.glob("*-chaos_ranks*/run.yml")
        return {path.parent for path in found if own in path.read_text(errors="replace")}

    def _check_results(self, played: Played, new: set[Path]) -> None:
        """Check the results of the run before, and of this one."""
        if self._before and _hashes(self._before) != self._hashes:
            played.violations.append(f"{self._before.name}, which was finished, has changed")
        for folder in new:
            self._check_run(played, folder)

    def _check_run(self, played: Played, folder: Path) -> None:
        """Check that results of finished ranks are intact here, or else on their nodes."""
        try:
            summary = json.loads((folder / "summary.json").read_text())
        except FileNotFoundError:
            summary = {"exit_codes": {}, "not_fetched": {}}
        except ValueError as error:
            played.violations.append(f"summary.json of {folder.name} is none: {error}")
            return
        for node in ("node1", "node2"):
            is_whole = _is_whole(folder / "files" / node)
            was_left = _has_left(folder / "logs" / f"{node}.log")
            fetched = summary["exit_codes"].get(node) == 0 and node not in summary["not_fetched"]
            if fetched and not is_whole:
                played.violations.append(f"{node}'s results in {folder.name} are not whole")
            elif was_left and not is_whole and not self._is_whole_there(node, folder.name, played):
                played.violations.append(f"{node}'s results of {folder.name} are lost")

    def _is_whole_there(self, node: str, run: str, played: Played) -> bool:
        """Return whether the results are intact on the node; True if the fault removed the node."""
        if played.fault.kind == "node removed" and played.fault.node == node:
            return True
        copy = Path(tempfile.mkdtemp(dir=self._folder))
        docker("cp", f"{self.cluster.container(node)}:{RUNS_THERE}/{run}/.", str(copy))
        return _is_whole(copy)

    def _check_next(self, played: Played) -> None:
        """Run the next `up` and `launch`; that run is the one before for the next fault."""
        runs = self._runs()
        self.cluster.run("up", "--nodes", 2, timeout_s=NEXT_BOUND_S)
        program = ("--", self._program, "ring", 0.1, 10)
        self.cluster.run("launch", "--no-verify", *program, timeout_s=NEXT_BOUND_S)
        (last,) = self._runs() - runs
        whole = [_is_whole(last / "files" / node) for node in ("node1", "node2")]
        assert all(whole), f"the next launch has no whole results: {whole}"
        if self._before and not played.violations:
            shutil.rmtree(self._before)
        for folder in () if played.violations else runs - {self._before}:
            shutil.rmtree(folder, ignore_errors=True)
        self._before, self._hashes = last, _hashes(last)

    def _check_down(self, played: Played) -> None:
        try:
            self.cluster.run("down", timeout_s=NEXT_BOUND_S)
            if left := self.cluster.things():
                played.violations.append(f"down leaves {left}")
        except (AssertionError, TimeoutError) as error:
            played.violations.append(f"down: {type(error).__name__}: {error}"[-1500:])
        finally:
            if self.cluster.things():
                self.cluster.run("down", "--force", check=None)


def _judge(
    fault: Fault, code: int | None, lines: list[str], *, has_struck: bool = True
) -> list[str]:
    """Return the violations of what a command must do after any fault."""
    if fault.kind.startswith("command killed") and code == -signal.SIGKILL:
        return []
    said = "\n".join(line for line in lines if not OF_RANKS.match(line))
    tail = "\n".join(lines[-25:])
    if code is None:
        return [f"{fault.verb} did not end within {BOUND_S[fault.verb]} s:\n{tail}"]
    found = [f"it says {words!r}:\n{tail}" for words in TRACES if words in said]
    # Without its engine a command cannot begin: then something that it needs is missing.
    is_missing = fault.kind == "dockerd restarted" and code == EXIT_USAGE
    if code not in (EXIT_DONE, EXIT_FAILED) and not is_missing:
        found.append(f"exit code {code}:\n{tail}")
    if code in (EXIT_FAILED, EXIT_USAGE) and not _is_named(fault, lines):
        found.append(f"the cause is not named:\n{tail}")
    ends_run = has_struck and fault.phase == "launch running" and KINDS[fault.kind].ends_run
    if code == EXIT_DONE and ends_run:
        found.append(f"the launch ended well:\n{tail}")
    return found


def _is_named(fault: Fault, lines: list[str]) -> bool:
    """Return whether the error names the node or the cause."""
    begins = [n for n, line in enumerate(lines) if line.startswith("error: ")]
    said = "\n".join(lines[begins[0] :]) if begins else ""
    if fault.kind == "disk full" and begins:
        return "/" in lines[begins[0]] or "this machine's disk" in lines[begins[0]]
    return bool(said) and (fault.kind in NAMELESS or fault.node in said)


def _outcome(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "killed, as played"
    return "went on" if code == EXIT_DONE else "ended, cause named"


def _said(lines: list[str]) -> str:
    """Return the first line of the error; for a command that went on, the first event that it reported."""
    errors = [line for line in lines if line.startswith("error: ")]
    noticed = [
        line
        for line in lines
        if re.search("applying them again|started again|goes on|recreated", line)
    ]
    return (errors or noticed or [""])[0]


def _has_left(log: Path) -> bool:
    return log.is_file() and "left" in log.read_text(errors="replace").splitlines()


def _is_whole(folder: Path) -> bool:
    try:
        said = (folder / "result.sha256").read_text().split()[0]
        return hashlib.sha256((folder / "result.bin").read_bytes()).hexdigest() == said
    except (OSError, IndexError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
