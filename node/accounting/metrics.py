"""Metrics of one rank: seconds by bucket, JSON lines for programs, progress lines for people."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol.metrics import Line, line_document
from protocol.places import COLLECTIVES, METRICS, rank_file

# startup: imports, data, joining the other ranks. rollout: stepping environments. compute: passes over the model, and
# steps of the optimiser over its parameters. strategy: the rest of a strategy's work: packing, compressing, mixing,
# an outer optimiser. comm: only waiting for a collective, so also for a slower rank; for a learner and its actors:
# handling messages. waiting: a learner or an actor has nothing to do until a message comes. eval: testing, on rank 0,
# and what ranks exchange for that. checkpoint: writing and reading checkpoints. other: everything else.
BUCKETS = (
    *("startup", "data", "rollout", "compute", "strategy"),
    *("comm", "waiting", "eval", "checkpoint", "other"),
)


class Clock:
    """Seconds by bucket. Exactly one bucket runs at any time, so that they sum to the wall time.

    Args:
        since: when the first bucket, startup, began (time.perf_counter).
    """

    def __init__(self, since: float) -> None:
        self._seconds = dict.fromkeys(BUCKETS, 0.0)
        self._running = "startup"
        self._since = since

    def switch(self, bucket: str) -> str:
        """Let `bucket` run from now on; returns the bucket that ran before."""
        now = time.perf_counter()
        self._seconds[self._running] += now - self._since
        self._since = now
        before, self._running = self._running, bucket
        return before

    @contextmanager
    def measure(self, bucket: str) -> Iterator[None]:
        """Run `bucket` within the context; the bucket that ran before is paused meanwhile."""
        before = self.switch(bucket)
        try:
            yield
        finally:
            self.switch(before)

    def read(self) -> dict[str, float]:
        """Return all buckets up to now, and their `total`."""
        self.switch(self._running)
        return {**self._seconds, "total": sum(self._seconds.values())}


class Metrics:
    """Writes one JSON object a line (protocol/metrics.py), flushed, so that a killed run leaves what it had."""

    def __init__(
        self, run_dir: Path | None, rank: int, local_world_size: int, *, append: bool = False
    ) -> None:
        self._rank = rank
        self._file = self._collectives = None
        if run_dir:
            run_dir.mkdir(parents=True, exist_ok=True)
            # Ranks on one machine share the folder; a node's only rank has it for itself.
            mode = "a" if append else "w"
            metrics = rank_file(METRICS, rank, local_world_size)
            collectives = rank_file(COLLECTIVES, rank, local_world_size)
            self._file = (run_dir / metrics).open(mode, encoding="utf-8")
            self._collectives = (run_dir / collectives).open(mode, encoding="utf-8")

    def write(self, line: Line, own: Mapping[str, float] | None = None) -> None:
        """Add one line; without a run folder, do nothing.

        Args:
            line: the fields of the line.
            own: figures of a task that the line's type need not know.
        """
        self._add(line_document(line, own))

    def write_rollout(self, step: int, figures: Mapping[str, Any]) -> None:
        """Add a line with whatever a task reports of how its data for a step were made."""
        head = {"event": "rollout", "rank": self._rank, "time": time.time()}
        self._add({**head, "step": step, **figures})

    def _add(self, said: Mapping[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(said) + "\n")
            self._file.flush()

    def write_collectives(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add a line for each collective, to a file of their own."""
        if self._collectives and lines:
            self._collectives.writelines(json.dumps(line) + "\n" for line in lines)
            self._collectives.flush()


class Progress:
    """Lines for people on standard output. Every rank reports its start and its end.

    Rank 0 also reports what happens in between.
    """

    def __init__(self, rank: int, steps: int, done: int = 0) -> None:
        self._rank = rank
        self._done = done  # steps done before this process began
        self._steps = steps
        self._began = self._shown = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line now: a log that is followed must not wait for a full buffer."""
        print(text, flush=True)

    def step(self, step: int, loss: float, sent_bytes: int) -> None:
        """Print progress, at most one line a second, and the last step's."""
        now = time.monotonic()
        if self._rank != 0 or (now - self._shown < 1 and step < self._steps):
            return
        self._shown = now
        per_s = (step - self._done) / (now - self._began)
        left_s = (self._steps - step) / per_s
        self.say(
            f"step {step}/{self._steps}  loss {loss:.3f}  {per_s:.1f} steps/s  "
            f"sent {sent_bytes / 1e6:.1f} MB  left {left_s:.0f} s"
        )


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Format buckets as one text, largest first, without those under 50 ms: `compute 9.1 s, eval 3.0 s`."""
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {s:.1f} s" for name, s in parts if s >= 0.05 and name != "total")
