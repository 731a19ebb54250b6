"""Watches silent ranks: asks their nodes what they are doing, and reports a stall.

While ranks print, nodes are not asked; otherwise each look takes some 40 ms of processor time on each node.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress

from cluster.accounting.clocks import Clocks
from cluster.run.rank_placement import RankPlacement
from cluster.run.stall import (
    STOPPED,
    SUSPECT_STATES,
    RankState,
    Stall,
    find_stall,
    has_moved,
    read_state,
)
from cluster.ssh.fleet import Fleet

RANK_STATES = ("python3", "-S", "-m", "node.supervisor.rank_states")
STACKS = ("python3", "-S", "-m", "node.supervisor.stacks")
LOOK_INTERVAL_S, ASK_INTERVAL_S = 0.5, 10.0
FIRST_WORDS_S = 30.0  # before the first report; doubles with each one
# With a command that hangs on a node: a question about its ranks, and one for their stacks, which takes 3 s at most.
PATIENCE_S, STACKS_PATIENCE_S = 30.0, 10.0
# With nodes that are asked: later answers count with the next ones.
ASK_PATIENCE_S = 5.0
# Of a node's answer, which has 200 bytes for each rank, and 60 for each node that it is connected to.
MOST_ANSWER_BYTES = 4 << 20


class Questions:
    """Asks nodes for the states of their ranks, each in a thread of its own, so that a bad one delays no other.

    A node whose answer is awaited is not asked again. One question may be asked at a time.

    Args:
        fleet: connections to the nodes.
        run: the run's name.
    """

    def __init__(self, fleet: Fleet, run: str) -> None:
        self._fleet, self._argv = fleet, (*RANK_STATES, run)
        self._awaited: set[str] = set()
        self._said: dict[str, bytes] = {}
        self._news = threading.Condition()

    def ask(
        self, places: Iterable[RankPlacement], patience_s: float, look: Callable[[], None]
    ) -> dict[RankPlacement, RankState | None]:
        """Return the states of ranks in rank order; None if a node does not tell in time.

        Args:
            places: the ranks.
            patience_s: how long to wait for nodes, in looks.
            look: called every LOOK_INTERVAL_S of waiting.
        """
        places = sorted(places, key=lambda place: place.rank)
        nodes = {place.node for place in places}
        self._wait_for(self._start(nodes), patience_s, look)
        with self._news:
            said = {node: self._said.pop(node) for node in nodes & self._said.keys()}
        return _read_states(places, said)

    def forget(self) -> None:
        """Forget late answers: they are from an earlier silence."""
        with self._news:
            self._said.clear()

    def _start(self, nodes: set[str]) -> set[str]:
        """Ask the nodes that do not owe an answer, and return them."""
        with self._news:
            asked = nodes - self._awaited
            self._awaited |= asked
        for node in asked:
            threading.Thread(target=self._ask_one, args=(node,), daemon=True).start()
        return asked

    def _wait_for(self, nodes: set[str], patience_s: float, look: Callable[[], None]) -> None:
        for _ in range(round(patience_s / LOOK_INTERVAL_S)):
            with self._news:
                if self._news.wait_for(lambda: not nodes & self._awaited, LOOK_INTERVAL_S):
                    return
            look()

    def _ask_one(self, node: str) -> None:
        said = b""
        with suppress(RuntimeError, CancelledError):  # the fleet was closed
            argv = self._argv
            results = self._fleet.run(argv, nodes=[node], check=False, patience_s=PATIENCE_S)
            said = results[node].stdout
        with self._news:
            self._said[node] = said
            self._awaited.discard(node)
            self._news.notify_all()


class StallWatch:
    """Watches ranks from a thread of its own.

    Args:
        fleet: connections to the nodes.
        run: the run's name.
        say: prints a message for the user.
        timeout_s: seconds without any activity after which the ranks are given up; None: never.
        clocks: those of nodes on other hosts; None: all nodes have this machine's.
    """

    def __init__(
        self,
        fleet: Fleet,
        run: str,
        say: Callable[[str], None],
        timeout_s: float | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self._fleet, self._run, self._say = fleet, run, say
        self._clocks = clocks or {}
        self._questions = Questions(fleet, run)
        self._timeout_s = timeout_s
        self._interval_s = min(ASK_INTERVAL_S, (timeout_s or ASK_INTERVAL_S) / 3)
        self._running: set[RankPlacement] = set()
        self._awaited: set[RankPlacement] = set()  # awaiting a restart
        self._idle_s = 0.0  # counted in looks, not by a clock: Ctrl-Z stops our looks, too
        self._over = threading.Event()
        self.stall: Stall | None = None  # set when the ranks are given up

    def start(self, places: Iterable[RankPlacement], give_up: Callable[[], None]) -> None:
        """Start watching; `give_up` is called once, when nothing has moved for `timeout_s`."""
        self._running = set(places)
        threading.Thread(target=self._watch, args=(give_up,), daemon=True).start()

    def hear(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines that a rank prints, noting each as activity."""
        for line in lines:
            self._idle_s = 0.0
            yield line

    def forget(self, place: RankPlacement) -> None:
        """Stop watching a rank that has ended; its end counts as activity."""
        self._running.discard(place)
        self._awaited.discard(place)
        self._idle_s = 0.0

    def await_restart(self, place: RankPlacement) -> None:
        """Note that a rank has ended and may be restarted; until then waiting for it is no stall."""
        self._awaited.add(place)
        self._running.discard(place)

    def watch_again(self, place: RankPlacement) -> None:
        """Watch a rank that has been restarted."""
        self._running.add(place)
        self._awaited.discard(place)
        self._idle_s = 0.0

    def stopped(self) -> dict[RankPlacement, str]:
        """Return the running ranks that are stopped, for which the others wait in vain, with words for how."""
        # Asked anew: an answer that the watching thread awaits may be from before.
        questions = Questions(self._fleet, self._run)
        states = questions.ask(set(self._running), PATIENCE_S, lambda: None)
        return {
            place: SUSPECT_STATES[state.state]
            for place, state in states.items()
            if state and state.state in STOPPED
        }

    def end_with_stacks(self) -> None:
        """If the ranks were given up, make those still running print their stacks, which ends them."""
        if self.stall is not None and self._running:
            nodes = sorted({place.node for place in self._running})
            with suppress(RuntimeError):  # the fleet was closed
                for action in ("hold", "end"):  # hold all first, so that none sees another's end
                    argv = (*STACKS, action, self._run)
                    self._fleet.run(argv, nodes=nodes, check=False, patience_s=STACKS_PATIENCE_S)

    def end(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self, give_up: Callable[[], None]) -> None:
        before: dict[RankPlacement, RankState] = {}
        asked_at, words_at = 0.0, FIRST_WORDS_S
        while not self._over.wait(LOOK_INTERVAL_S):
            self._look()
            if self._idle_s < self._interval_s:
                before, asked_at, words_at = {}, 0.0, FIRST_WORDS_S
                self._questions.forget()
            elif self._idle_s >= asked_at + self._interval_s:
                asked_at = self._idle_s
                states = self._ask()
                moved = any(self._moved(before.get(p), s) for p, s in states.items())
                if moved or not any(states.values()):  # if no node can tell, nobody is idle
                    self._idle_s = 0.0
                before |= {place: state for place, state in states.items() if state}
                asked_at = min(asked_at, self._idle_s)
                words_at = self._judge(states, words_at)
                if self.stall is not None:
                    give_up()
                    return

    def _judge(self, states: Mapping[RankPlacement, RankState | None], words_at: float) -> float:
        """Report the stall, or give up; return the idle time at which to report next."""
        is_over = self._timeout_s is not None and self._idle_s >= self._timeout_s
        if self._over.is_set() or not (is_over or self._idle_s >= words_at):
            return words_at
        stall = find_stall(states, self._fleet.nodes, self._idle_s, time.time(), self._clocks)
        if is_over:
            self.stall = stall
        else:
            self._say(stall.words() + self._what_follows())
        return 2 * words_at

    def _what_follows(self) -> str:
        if self._timeout_s is None:
            return ""
        return f"\n  ended after {self._timeout_s:.0f} s of it (--stall-timeout)"

    def _moved(self, before: RankState | None, now: RankState | None) -> bool:
        return before is not None and now is not None and has_moved(before, now, self._interval_s)

    def _look(self) -> None:
        """Count a look, which may be one at nodes that have not answered yet."""
        self._idle_s = 0.0 if self._awaited else self._idle_s + LOOK_INTERVAL_S

    def _ask(self) -> dict[RankPlacement, RankState | None]:
        patience_s = min(ASK_PATIENCE_S, self._interval_s)
        return self._questions.ask(set(self._running), patience_s, self._look)


def _read_states(
    places: Sequence[RankPlacement], said: Mapping[str, bytes]
) -> dict[RankPlacement, RankState | None]:
    """Parse the nodes' answers, which may be anything, into states by rank; too long ones are ignored."""
    documents: dict[str, object] = {}
    for node, text in said.items():
        if len(text) > MOST_ANSWER_BYTES:
            continue
        with suppress(ValueError, RecursionError):
            documents[node] = json.loads(text)
    return {place: read_state(_of(documents.get(place.node), str(place.rank))) for place in places}


def _of(document: object, rank: str) -> object:
    return document.get(rank) if isinstance(document, dict) else None
