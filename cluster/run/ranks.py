"""Rank processes: started on every node at once, their output streamed, and ended together.

Once an essential rank fails the others are told to stop (SIGTERM, ten seconds, SIGKILL: `node.rank` does that where its
standard input ends, so it also happens when we are killed). Which of them is the root cause: cluster/run/root_cause.py.
A rank that is not essential is started again on its node where it fails, some times, and then done without.
"""

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.base.console import LinePrinter
from cluster.base.errors import NodeError
from cluster.live.news import News, RankEnded, RankRestarted
from cluster.run.placement import RankPlacement
from cluster.run.rank_exit import RankExit, how_it_ended, read_report
from cluster.run.rank_output import add_line, copy_lines
from cluster.run.stall_watcher import StallWatch
from cluster.ssh.fleet import Fleet
from cluster.ssh.liveness import MOST_SILENT_S
from cluster.ssh.remote_process import RemoteProcess
from protocol.places import RANK_LOCK
from protocol.rank import EXIT_BUSY, EXIT_USAGE, GRACE_S, LOST, StartOrder
from protocol.rank_variables import RESTART_COUNT
from protocol.reader import document

RANK = ("python3", "-m", "node.rank")
STOP_TIMEOUT_S = 2 * GRACE_S  # within which node.rank has killed its rank
LAST_WORDS_S = 2.0  # for a rank that has failed to say why, where another has heard of it first
LAST_ENDS_S = 20.0  # for ranks to end by themselves once the essential ones are done
RESTART_DELAYS_S = (1.0, 2.0, 4.0)  # before the first restart of a rank, the second, any other


def refuse_busy(fleet: Fleet) -> None:
    """See that no run has any of the nodes: whatever is changed or measured now would be so under it.

    Raises:
        NodeError: names the run.
    """
    tried = fleet.run(["flock", "--nonblock", RANK_LOCK, "true"], check=False)
    busy = [node for node, result in tried.items() if result.exit_code == 1]
    if busy:
        runs = fleet.run(["cat", RANK_LOCK], nodes=busy, check=False)
        raise _in_use({node: f"busy with run {runs[node].stdout.decode()}" for node in busy})


def _in_use(refusals: Mapping[str, str]) -> NodeError:
    return NodeError("the cluster is in use", refusals, "wait for that run, or stop it")


class RankProcesses:
    """All ranks of a run, from their start to their end.

    Args:
        fleet: connections to the nodes.
        orders: what each rank gets.
        log_dir: for what they print.
        printer: shows what they print.
        watch: for stalls.
        say: tells the user something.
        max_restarts: how often each rank that is not essential is started again after a failure.
        tell: gets what becomes of ranks, for who looks on.
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
        self._ended: queue.Queue[RankExit | None] = queue.Queue()  # None: the rest is given up
        self._no_restarts = threading.Event()
        self._stopped_at = math.inf  # Unix time
        self._processes = {place: fleet.start(place.node, RANK) for place in orders}
        for place, process in self._processes.items():
            process.write(_line(orders[place]))
        watch.start(orders, lambda: self._ended.put(None))
        for place, process in self._processes.items():
            threading.Thread(target=self._keep_up, args=(place, process), daemon=True).start()

    def wait(self) -> list[RankExit]:
        """Wait until the run has ended, and stop what is left of it; how the ranks ended, by rank.

        It ends with the last of the essential ranks, or once one of these fails.

        Raises:
            NodeError: a node refused, because another run has it.
            KeyboardInterrupt: handed on, once every rank has been stopped.
        """
        ended: dict[RankPlacement, RankExit] = {}
        stalled: dict[RankPlacement, str] = {}
        try:
            self._wait_essential(ended)
            if self._is_done(ended):
                self._wait_others(ended)
            elif all(end.is_bystander for end in ended.values() if _ends_run(end)):
                stalled = self._watch.stopped()  # of one that is stopped the others see nothing
        finally:  # on Ctrl-C, too
            self._watch.end()
            self._wait_stopped(ended)
        if refusals := {end.place.node: end.refusal for end in ended.values() if end.has_never_run}:
            raise _in_use(refusals)
        ends = [ended.get(place) or _unstoppable(place) for place in self._orders]
        return [replace(end, stall=stalled.get(end.place, "")) for end in ends]

    def stop(self) -> None:
        """Tell every rank to end."""
        self._no_more()
        for process in self._processes.values():
            _tell_to_end(process)

    def _no_more(self) -> None:
        """Whatever ends from now on ends by us."""
        self._no_restarts.set()
        self._stopped_at = min(self._stopped_at, time.time())

    def _is_done(self, ended: Mapping[RankPlacement, RankExit]) -> bool:
        return all(place in ended and ended[place].exit_code == 0 for place in self._essential)

    def _wait_essential(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Until the essential ones have ended, or one has failed; after a bystander, a moment longer for another."""
        deadline = math.inf
        while not self._essential <= ended.keys() and (end := self._next(deadline)):
            ended[end.place] = end
            if _ends_run(end) and not end.is_bystander:
                return
            if _ends_run(end):
                deadline = min(deadline, time.monotonic() + LAST_WORDS_S)

    def _wait_others(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Until those that the run does not need have ended, too: whoever is done may have told them."""
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
        if len(ended) == len(self._orders):
            return
        self._no_more()
        self._watch.end_with_stacks()
        self.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while len(ended) < len(self._orders):
            if (end := self._next(deadline)) is None:
                if time.monotonic() < deadline:
                    continue  # given up meanwhile
                return
            was_stopped = end.exit_code != LOST and end.time > self._stopped_at
            ended[end.place] = replace(end, was_stopped=was_stopped)

    def _next(self, deadline: float) -> RankExit | None:
        """The next rank that has ended for good; None where there is none before the deadline, or they are given up."""
        left_s = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        try:
            return self._ended.get(timeout=left_s)
        except queue.Empty:
            return None

    def _keep_up(self, place: RankPlacement, process: RemoteProcess) -> None:
        """Follow a rank, and start it again, to its last end."""
        end: RankExit | None = None
        try:
            end = self._follow(place, process)
            while self._awaits_restart(end):
                end = self._follow_again(end)
        finally:  # whoever waits for the end must hear of it, whatever went wrong
            self._watch.forget(place)
            end = end or RankExit(place, LOST, time.time())
            self._tell_live(RankEnded(place.name, end.exit_code))
            self._ended.put(end)

    def _follow(self, place: RankPlacement, process: RemoteProcess) -> RankExit:
        show = partial(self._printer.print, place.name)
        copy_lines(self._watch.hear(process.lines()), self._log_file(place), show)
        exit_code, stderr = process.wait()
        return self._read_end(place, exit_code, stderr.decode(errors="replace"))

    def _follow_again(self, end: RankExit) -> RankExit:
        """Start a rank again, and follow it to its next end."""
        place, restarts = end.place, end.restarts + 1
        order = self._orders[place]
        environ = order.env | {RESTART_COUNT: str(restarts)}
        try:
            process = self._fleet.start(place.node, RANK)
            process.write(_line(order._replace(env=environ)))
        except NodeError:  # the node has gone meanwhile
            return RankExit(place, LOST, time.time(), restarts=end.restarts)
        self._processes[place] = process
        self._watch.watch_again(place)
        self._tell_live(RankRestarted(place.name, restarts))
        if self._stopped_at < math.inf:  # `stop` may have been a moment too early to see it
            _tell_to_end(process)
        return replace(self._follow(place, process), restarts=restarts)

    def _awaits_restart(self, end: RankExit) -> bool:
        """Say what becomes of a rank that has failed; whether it is to be started again, when that is due."""
        if end.exit_code == 0 or _ends_run(end):
            return False
        self._watch.await_restart(end.place)
        if self._is_over(end):
            return False
        # Nobody knows how to start a lost one, and a mistake in its arguments it would make again.
        is_hopeless = end.exit_code in (LOST, EXIT_USAGE) or bool(end.refusal)
        if is_hopeless or end.restarts >= self._max_restarts:
            self._tell(end, "the run goes on without it")
            return False
        self._tell(end, f"started again ({end.restarts + 1} of {self._max_restarts})")
        delay_s = RESTART_DELAYS_S[min(end.restarts, len(RESTART_DELAYS_S) - 1)]
        return not self._no_restarts.wait(delay_s)

    def _is_over(self, end: RankExit) -> bool:
        """Whether the run has ended; after a bystander, a moment later: an essential one may be about to end."""
        return self._no_restarts.wait(LAST_WORDS_S if end.is_bystander else 0.0)

    def _tell(self, end: RankExit, what_follows: str) -> None:
        """Say how a rank has ended that the run does not need, here and in its log."""
        how = how_it_ended(end, self._fleet.lost)
        why = f" ({end.error})" if end.error else ""
        line = f"rank {end.place.rank} on {end.place.node} {how}{why}; {what_follows}"
        self._say(line)
        add_line(line, self._log_file(end.place))

    def _log_file(self, place: RankPlacement) -> Path:
        return self._log_dir / f"{place.name}.log"

    def _read_end(self, place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
        if place.node in self._fleet.lost:
            return RankExit(place, LOST, time.time() - MOST_SILENT_S)  # when it was heard last
        if exit_code == EXIT_BUSY and not stderr.lstrip().startswith("{"):
            return RankExit(place, exit_code, time.time(), refusal=stderr.strip())
        return read_report(place, exit_code, stderr)


def _ends_run(end: RankExit) -> bool:
    """Whether the run ends by the end of this rank."""
    return end.has_never_run or (end.place.is_essential and end.exit_code != 0)


def _line(order: StartOrder) -> bytes:
    return json.dumps(document(order)).encode() + b"\n"


def _tell_to_end(process: RemoteProcess) -> None:
    with suppress(OSError, EOFError):  # the connection has gone: node.rank saw that too
        process.close_stdin()


def _unstoppable(place: RankPlacement) -> RankExit:
    words = f"it did not stop within {STOP_TIMEOUT_S:.0f} s"
    return RankExit(place, LOST, time.time(), words, was_stopped=True)
