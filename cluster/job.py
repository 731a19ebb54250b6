"""What a launch means to do: which program, on which places, over which links, for how long. Nothing here acts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.links import Link, collective_timeout_s
from cluster.places import Place, rank_environment
from cluster.program import Program
from cluster.runs import METRICS
from cluster.schedule import Event, check_nodes, check_schedule, check_steps
from cluster.shaping import Shape, refuse_replayed
from cluster.spec import ClusterSpec
from cluster.traces import Playback


@dataclass(frozen=True)
class Job:
    """One launch.

    Attributes:
        spec: the cluster.
        program: what every rank runs.
        places: the ranks, in order.
        shape: the links in force as they were last read: what their counters had counted by then is not this job's.
        schedule: what happens to links and nodes meanwhile.
        verify: whether the links are measured first.
    """

    spec: ClusterSpec
    program: Program
    places: Sequence[Place]
    shape: Shape
    schedule: Sequence[Event]
    verify: bool

    def check(self) -> None:
        """See that it can be done.

        Raises:
            UsageError: the schedule speaks of what is not there.
            ClusterError: traces that somebody plays by hand are in the way of it, or of measuring.
        """
        check_schedule(self.schedule, self.shape.links)
        check_nodes(self.schedule, [node.name for node in self.spec.nodes])
        check_steps(self.schedule, int(self.program.config.get("steps", 0)))
        if self.schedule:
            refuse_replayed(self.shape, "a schedule cannot be kept")
        if self.verify:
            refuse_replayed(self.shape, "the links cannot be measured")

    @property
    def timeout_s(self) -> float:
        """How long a collective may take on the slowest links there will be, and while the longest change lasts."""
        shape = self.shape
        links = [shape.links]
        for event in self.schedule:
            if event.profile is not None and shape.wanted is not None:
                links.append(replace(shape.wanted, profile=event.profile).links(self.spec.nodes))
            if event.playback is not None:
                links.append(tuple(_traced(link, event.playback) for link in shape.links))
        longest_s = max((_lasts_s(event) for event in self.schedule), default=0.0)
        return max(collective_timeout_s(some, len(self.places)) for some in links) + longest_s

    def config(self, limits: Mapping[str, Any]) -> dict[str, object]:
        """For run.yml; `limits` is what each node may use."""
        spec, shape, program = self.spec, self.shape, self.program
        return {
            "command": shlex.join(sys.argv),
            "cluster": {"name": spec.name, "nodes": spec.size, "slot": spec.slot},
            "shaping": (shape.wanted.origin() if shape.wanted else {})
            | {"wire": shape.wire, "tcp": shape.tcp, "mtu": shape.mtu},
            "program": {"argv": list(program.argv), "folder": str(program.folder or "")},
            "training": program.config,
            "collective_timeout_s": round(self.timeout_s),
            "verify": self.verify,
            "nproc_per_node": self.places[0].local_world_size,
            "limits": limits,
            "schedule": [event.words for event in self.schedule],
            "traces": [event.playback.record() for event in self.schedule if event.playback],
        }

    def orders(self, run: str) -> dict[Place, dict[str, Any]]:
        """What node/rank.py of each place gets on standard input: docs/formats.md."""
        timeout_s = self.timeout_s
        return {
            place: {
                "run": run,
                "argv": self.program.argv,
                "cwd": work_dir(run) if self.program.sends else "/root",
                "run_dir": run_dir(run),
                "env": rank_environment(
                    place,
                    self.places,
                    self.shape.links,
                    run,
                    run_dir(run),
                    timeout_s,
                    isolated=self.shape.isolated,
                ),
            }
            for place in self.places
        }

    def metrics_file(self, run: str) -> str:
        """Where rank 0 leaves its metrics, on its node."""
        return f"{run_dir(run)}/{self.places[0].file(METRICS)}"


def run_dir(run: str) -> str:
    """Where ranks leave what comes home, on every node."""
    return f"/run/gradwire/runs/{run}"


def work_dir(run: str) -> str:
    """Where a program that is sent lies, on every node."""
    return f"/root/work/{run}"


def _traced(link: Link, playback: Playback) -> Link:
    """A link as a trace has it in the mean."""
    trace = playback.trace
    if (link.src, link.dst) not in playback.pairs:
        return link
    rate_mbyte_s = trace.mean("rate_mbyte_s") if "rate_mbyte_s" in trace.fields else 0.0
    delay_ms = trace.mean("delay_ms") if "delay_ms" in trace.fields else link.delay_ms
    return replace(link, rate_mbyte_s=rate_mbyte_s or link.rate_mbyte_s, delay_ms=delay_ms)


def _lasts_s(event: Event) -> float:
    """How long something may be in the way of a collective: of a trace that goes on for ever it is one round."""
    if event.playback is not None:
        return min(event.playback.lasts_s, event.playback.trace.seconds)
    return event.for_s or 0.0
