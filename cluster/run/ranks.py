"""Rank processes: starts them on every node at once, streams their output, and ends them together.

Once an essential rank fails, the others are told to stop (SIGTERM, ten seconds, SIGKILL: `node.rank` does that when its
standard input ends, so it also happens if the launcher is killed). cluster/run/root_cause.py finds the root cause.
A rank that is not essential is restarted on its node a limited number of times; then the run goes on without it.
"""

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.base.console import LinePrinter
from cluster.base.errors import NodeError
from cluster.base.stdout import plain
from cluster.live.news import News, RankEnded, RankRestarted
from cluster.run.rank_exit import RankExit, how_it_ended, on_our_clock, read_report
from cluster.run.rank_output import add_line, copy_lines
from cluster.run.rank_placement import RankPlacement
from cluster.run.stall_watcher import StallWatch
from cluster.ssh.fleet import Fleet
from cluster.ssh.liveness import MOST_SILENT_S
from cluster.ssh.remote_process import RemoteProcess
from protocol.places import RANK_LOCK
from protocol.rank import EXIT_BUSY, EXIT_USAGE, GRACE_S, LOST, StartOrder
from protocol.rank_variables import RESTART_COUNT
from protocol.reader import document

RANK = ("python3", "-m", "node.rank")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_NAME_BYTES = "256"  # of a run, as a node says it
LOCKED = 1  # exit code of flock: others hold the lock
STOP_TIMEOUT_S = 2 * GRACE_S  # node.rank has killed its rank by then
LAST_WORDS_S = 5.0  # wait for the failed rank's own report after a bystander's
LAST_ENDS_S = 20.0  # for ranks to end by themselves once the essential ones are done
RESTART_DELAYS_S = (1.0, 2.0, 4.0)  # before a rank's first, second and any later restart


def refuse_busy(fleet: Fleet) -> None:
    """Check that no run uses any of the nodes: changing or measuring links now would disturb it.

    Raises:
        NodeError: a run does, and the message names it; or a node cannot tell, and the message says why.
    """
    # An exclusive lock for a moment: a shared one would not tell, as the ranks of a run share it, too.
    tried = fleet.run(["flock", "--nonblock", RANK_LOCK, "true"], check=False)
    busy = [node for node, result in tried.items() if result.exit_code == LOCKED]
    unknown = {
        node: result.words()
        for node, result in tried.items()
        if result.exit_code not in (0, LOCKED)
    }
    if busy:
        runs = fleet.run(["head", "-c", MOST_NAME_BYTES, RANK_LOCK], nodes=busy, check=False)
        names = {node: plain(runs[node].stdout.decode(errors="replace")).strip() for node in busy}
        raise _in_use({node: f"busy with run {name}" for node, name in names.items()} | unknown)
    if unknown:
        message = "nodes cannot tell that no run uses them"
        hint = "python -m cluster.doctor; or repair them all the same: python -m cluster.up --force"
        raise NodeError(message, unknown, hint)


def _in_use(refusals: Mapping[str, str]) -> NodeError:
    return NodeError("the cluster is in use", refusals, "wait for that run, or stop it")


class RankProcesses:
    """All ranks of a run, from their start to their end.

    Args:
        fleet: connections to the nodes.
        orders: the start order of each rank.
        log_dir: folder for their logs.
        printer: shows what they print.
        watch: detects stalls.
        say: prints a message for the user.
        max_restarts: how often each rank that is not essential is restarted after a failure.
        tell: callback of the live view, for ends and restarts of ranks.
    """

    def __init__(
        self,
        fleet: Fleet,
        orders: Mapping[RankPlacement, StartOrder],
        log_dir: Path,
        printer: LinePrinter,
        watch: StallWatch,
        say: Callable[[str], None],
        max_restarts: int = 0,
        tell: Callable[[News], None] = lambda news: None,
    ) -> None:
        self._fleet, self._orders = fleet, orders
        self._tell_live = tell
        self._printer = printer
        self._watch = watch
        self._log_dir = log_dir
        self._say, self._max_restarts = say, max_restarts
        self._essential = {place for place in orders if place.is_essential}
        self._ended: queue.Queue[RankExit | None] = queue.Queue()  # None: give up after a stall
        self._no_restarts = threading.Event()
        self._stopped_at = math.inf  # Unix time
        self._processes: dict[RankPlacement, RemoteProcess] = {}
        try:
            self._start()
        except BaseException:  # nobody will call `wait`
            self._abandon()
            raise

    def wait(self) -> list[RankExit]:
        """Wait until the run has ended, stop the remaining ranks, and return how all ranks ended, in rank order.

        The run ends with the last essential rank, or once one of these fails.

        Raises:
            NodeError: a node refused its rank, because another run has it.
            KeyboardInterrupt: re-raised once every rank has been stopped; a second one at once.
        """
        ended: dict[RankPlacement, RankExit] = {}
        try:
            stalled = self._wait_all(ended)
        except BaseException:
            # A first Ctrl-C, also while ranks are being stopped; a second one ends this wait, too.
            self._watch.end()
            self._wait_stopped(ended)
            raise
        if refusals := {end.place.node: end.refusal for end in ended.values() if end.has_never_run}:
            raise _in_use(refusals)
        ends = [ended.get(place) or _unstoppable(place) for place in self._orders]
        return [
            replace(
                end,
                stall=stalled.get(end.place, ""),
                was_stopped=end.was_stopped and end.time > self._stopped_at,
            )
            for end in self._by_our_clock(ends)
        ]

    def stop(self) -> None:
        """Tell every rank to end."""
        self._no_more()
        for process in self._processes.values():
            _tell_to_end(process)

    def _start(self) -> None:
        for place in self._orders:
            self._processes[place] = self._fleet.start(place.node, RANK)
        for place, process in self._processes.items():
            process.write(_line(self._orders[place]))
        self._watch.start(self._orders, lambda: self._ended.put(None))
        for place, process in self._processes.items():
            threading.Thread(target=self._keep_up, args=(place, process), daemon=True).start()

    def _abandon(self) -> None:
        """Stop the ranks that have been started and wait for their ends: their folders are fetched and removed next.

        Those that have not ended after STOP_TIMEOUT_S are cut off.
        """
        self._watch.end()
        self.stop()
        waiting = {
            threading.Thread(target=_hear_out, args=(process,), daemon=True): process
            for process in self._processes.values()
        }
        for thread in waiting:
            thread.start()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for thread in waiting:
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread, process in waiting.items():
            if thread.is_alive():
                process.close()

    def _no_more(self) -> None:
        """Restart no more ranks; those that end from now on count as stopped by us."""
        self._no_restarts.set()
        self._stopped_at = min(self._stopped_at, time.time())

    def _is_done(self, ended: Mapping[RankPlacement, RankExit]) -> bool:
        return all(place in ended and ended[place].exit_code == 0 for place in self._essential)

    def _wait_all(self, ended: dict[RankPlacement, RankExit]) -> dict[RankPlacement, str]:
        """Wait until the run has ended, and stop the remaining ranks; return as `StallWatch.stopped` does."""
        stalled: dict[RankPlacement, str] = {}
        self._wait_essential(ended)
        if self._is_done(ended):
            self._wait_others(ended)
        elif all(end.is_bystander for end in ended.values() if _ends_run(end)):
            stalled = self._watch.stopped()  # bystanders' errors do not tell of a stopped rank
        self._watch.end()
        if len(ended) < len(self._orders):
            self._no_more()
            self._watch.end_with_stacks()
            self._wait_stopped(ended)
        return stalled

    def _wait_essential(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Wait until all essential ranks have ended, or one has failed; after a bystander, LAST_WORDS_S longer."""
        deadline = math.inf
        while not self._essential <= ended.keys() and (end := self._next(deadline)):
            ended[end.place] = end
            if _ends_run(end) and not end.is_bystander:
                return
            if _ends_run(end):
                deadline = min(deadline, time.monotonic() + LAST_WORDS_S)

    def _wait_others(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Wait until the other ranks have ended, too: the essential ones may have told them to."""
        self._no_restarts.set()
        self._watch.end()
        deadline = time.monotonic() + LAST_ENDS_S
        while len(ended) < len(self._orders) and (end := self._next(deadline)):
            ended[end.place] = end
        if left := [place.name for place in self._orders if place not in ended]:
            self._say(
                "the essential ranks are done; stopped, as they have not ended in "
                f"{LAST_ENDS_S:.0f} s: {', '.join(left)}"
            )

    def _wait_stopped(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Tell the ranks to end, and wait for the ends that are missing, STOP_TIMEOUT_S at most."""
        self.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while len(ended) < len(self._orders):
            if (end := self._next(deadline)) is None:
                if time.monotonic() < deadline:
                    continue  # the stall watch gave up in the meantime
                return
            # `wait` sees to those that had failed before, once it knows whose clocks their times are by.
            ended[end.place] = replace(end, was_stopped=end.exit_code != LOST)

    def _by_our_clock(self, ends: Sequence[RankExit]) -> list[RankExit]:
        """Return these ends with times of one clock, so that the first failure is known.

        On this machine nothing is changed: reports of ranks that fail together may overtake each other.
        """
        failed = [end for end in ends if end.exit_code != 0]
        if len(failed) < 2:
            return list(ends)
        elsewhere = self._elsewhere([end.place.node for end in failed if end.behind_s])
        return [on_our_clock(end) if end.place.node in elsewhere else end for end in ends]

    def _elsewhere(self, nodes: Sequence[str]) -> set[str]:
        """Return those nodes that are on other machines, as the boots of their kernels tell; as far as they answer."""
        asked = sorted(set(nodes) - self._fleet.lost.keys())
        told = self._fleet.run(
            ["cat", str(BOOT_ID)], nodes=asked, check=False, patience_s=LAST_WORDS_S
        )
        here = BOOT_ID.read_text()
        return {
            node
            for node, result in told.items()
            if (boot := result.stdout.decode(errors="replace")) and boot != here
        }

    def _next(self, deadline: float) -> RankExit | None:
        """Return the next rank that has ended for good; None after the deadline, or if the stall watch gave up."""
        left_s = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        try:
            return self._ended.get(timeout=left_s)
        except queue.Empty:
            return None

    def _keep_up(self, place: RankPlacement, process: RemoteProcess) -> None:
        """Follow a rank through all its restarts, to its last end."""
        end: RankExit | None = None
        try:
            end = self._follow(place, process)
            while self._awaits_restart(end):
                end = self._follow_again(end)
        finally:  # `wait` must learn of the end, whatever went wrong
            end = end or RankExit(place, LOST, time.time())
            try:
                self._watch.forget(place)
                self._tell_live(RankEnded(place.name, end.exit_code))
            finally:
                self._ended.put(end)

    def _follow(self, place: RankPlacement, process: RemoteProcess) -> RankExit:
        show = partial(self._printer.print, place.name)
        try:
            copy_lines(self._watch.hear(process.lines()), self._log_file(place), show)
            exit_code, stderr = process.wait()
        except NodeError as error:  # it says more than anybody reads; its connection is cut
            return RankExit(place, LOST, time.time(), error.outcomes.get(place.node, error.message))
        return self._read_end(place, exit_code, stderr.decode(errors="replace"))

    def _follow_again(self, end: RankExit) -> RankExit:
        place, restarts = end.place, end.restarts + 1
        order = self._orders[place]
        environ = order.env | {RESTART_COUNT: str(restarts)}
        try:
            process = self._fleet.start(place.node, RANK)
            process.write(_line(order._replace(env=environ)))
        except NodeError:  # the node is gone
            return RankExit(place, LOST, time.time(), restarts=end.restarts)
        self._processes[place] = process
        self._watch.watch_again(place)
        self._tell_live(RankRestarted(place.name, restarts))
        if self._stopped_at < math.inf:  # `stop` may have run before this process was known to it
            _tell_to_end(process)
        return replace(self._follow(place, process), restarts=restarts)

    def _awaits_restart(self, end: RankExit) -> bool:
        """Report what happens to a failed rank; return whether to restart it, when that is due."""
        if end.exit_code == 0 or _ends_run(end):
            return False
        self._watch.await_restart(end.place)
        if self._is_over(end):
            return False
        # A lost rank cannot be started, and an error in its arguments would occur again.
        is_hopeless = end.exit_code in (LOST, EXIT_USAGE) or bool(end.refusal)
        if is_hopeless or end.restarts >= self._max_restarts:
            self._tell(end, "the run goes on without it")
            return False
        self._tell(end, f"started again ({end.restarts + 1} of {self._max_restarts})")
        delay_s = RESTART_DELAYS_S[min(end.restarts, len(RESTART_DELAYS_S) - 1)]
        return not self._no_restarts.wait(delay_s)

    def _is_over(self, end: RankExit) -> bool:
        """Return whether the run has ended; after a bystander wait a moment, as an essential rank may be ending."""
        return self._no_restarts.wait(LAST_WORDS_S if end.is_bystander else 0.0)

    def _tell(self, end: RankExit, what_follows: str) -> None:
        """Report how a rank that is not essential ended, here and in its log."""
        how = how_it_ended(end, self._fleet.lost)
        why = f" ({end.error})" if end.error else ""
        line = f"rank {end.place.rank} on {end.place.node} {how}{why}; {what_follows}"
        self._say(line)
        add_line(line, self._log_file(end.place))

    def _log_file(self, place: RankPlacement) -> Path:
        return self._log_dir / f"{place.name}.log"

    def _read_end(self, place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
        if place.node in self._fleet.lost:
            return RankExit(place, LOST, time.time() - MOST_SILENT_S)  # when it last answered
        if exit_code == EXIT_BUSY and not stderr.lstrip().startswith("{"):
            return RankExit(place, exit_code, time.time(), refusal=stderr.strip())
        return read_report(place, exit_code, stderr)


def _ends_run(end: RankExit) -> bool:
    return end.has_never_run or (end.place.is_essential and end.exit_code != 0)


def _line(order: StartOrder) -> bytes:
    return json.dumps(document(order)).encode() + b"\n"


def _tell_to_end(process: RemoteProcess) -> None:
    with suppress(OSError, EOFError):  # the connection is gone: node.rank sees that, too
        process.close_stdin()


def _hear_out(process: RemoteProcess) -> None:
    """Wait for the end of a rank whose output nobody wants, but which would block if nobody read it."""
    with suppress(Exception):  # whatever goes wrong with its output, its end is awaited
        for _ in process.lines():
            pass
    with suppress(NodeError):
        process.wait()


def _unstoppable(place: RankPlacement) -> RankExit:
    words = f"it did not stop within {STOP_TIMEOUT_S:.0f} s"
    return RankExit(place, LOST, time.time(), words, was_stopped=True)
