"""The plan of one launch: program, placement, links, timeouts. Nothing here has side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cluster.base.console import command_line
from cluster.base.secrets import without_secrets
from cluster.base.spec import ClusterSpec
from cluster.links.link import collective_timeout_s
from cluster.run.experiment import Experiment
from cluster.run.launch_words import NONE
from cluster.run.program import Program
from cluster.run.rank_placement import (
    RankPlacement,
    fill_arguments,
    place_ranks,
    rank_environment,
    resolve_max_restarts,
)
from cluster.run.results import parse_max_results
from cluster.schedule.events import Event, check_events
from cluster.schedule.forecast import slowest_links
from cluster.schedule.record import event_record
from cluster.shaping.link_state import (
    LinkState,
    refuse_replayed,
    settings_document,
)
from protocol.link import Link
from protocol.places import HOME_FOLDER, METRICS, run_dir, shared_dir, work_dir
from protocol.rank import StartOrder
from protocol.reader import document

OWN_PROGRAM_S = 600.0  # torch's timeout of an NCCL collective
LEAST_TIMEOUT_S = 1800.0  # torch's own default for gloo
MOST_TIMEOUT_S = 7 * 24 * 3600.0  # in milliseconds it still fits into an int


@dataclass(frozen=True)
class Job:
    """The plan of one launch.

    Attributes:
        spec: the cluster.
        program: what every rank runs.
        places: the placements of all ranks, in order.
        link_state: the links in force when last read; bytes that they had counted by then are not this job's.
        schedule: changes to links and nodes during the run.
        verify: how the links are verified first (`cluster.run.launch_words`).
        max_results_bytes: the most that is fetched from one node.
        allow_undecided: whether the run goes on over undecided links: the host was too busy to tell if they hold.
        max_restarts: how often each rank that is not essential is restarted after a failure.
        stall_timeout_s: seconds without any activity after which the run is ended; 0: never; None: the default.
        shared: whether all ranks share a folder.
    """

    spec: ClusterSpec
    program: Program
    places: Sequence[RankPlacement]
    link_state: LinkState
    schedule: Sequence[Event]
    verify: str
    max_results_bytes: int
    allow_undecided: bool = False
    max_restarts: int = 0
    stall_timeout_s: float | None = None
    shared: bool = False

    def check(self) -> None:
        """Check that the job can run.

        Raises:
            UsageError: the schedule does not fit the links, nodes or steps.
            ClusterError: traces that a user is playing would interfere with the schedule or with measuring.
        """
        check_events(
            self.schedule,
            nodes=[node.name for node in self.spec.nodes],
            steps=self.program.training.steps,
            links=self.link_state.links,
            slow_start_after_idle=self.link_state.slow_start_after_idle,
        )
        _ = self.slowest_links  # refuses what events together would ask for
        if self.schedule:
            refuse_replayed(self.link_state, "a schedule cannot be kept")
        if self.verify != NONE:
            refuse_replayed(self.link_state, "the links cannot be measured")

    @cached_property
    def slowest_links(self) -> list[Link]:
        """Each link as slow as it ever is during the run; raises as `cluster.schedule.forecast.slowest_links`."""
        return slowest_links(self.schedule, self.link_state, self.spec.nodes)

    @cached_property
    def silence_s(self) -> float:
        """How long nothing may move: a collective on the slowest links of the run, plus the longest change."""
        longest_s = max((_lasts_s(event) for event in self.schedule), default=0.0)
        return collective_timeout_s(self.slowest_links, len(self.places)) + longest_s

    @property
    def stalled_after_s(self) -> float | None:
        """Seconds without any activity after which the run is ended; None: never.

        The default is `silence_s`. A program of the user's own gets OWN_PROGRAM_S at least, because it may sleep on
        purpose.
        """
        if self.stall_timeout_s is not None:
            return self.stall_timeout_s or None
        return max(self.silence_s, 0.0 if self.program.config else OWN_PROGRAM_S)

    @property
    def timeout_s(self) -> float:
        """How long a rank waits for others in a collective, or to join them, before it fails.

        This must not end a healthy run, and the others may be computing or testing meanwhile. The stall watcher
        (stall_watcher.py) ends runs in which nothing moves, much sooner.
        """
        stalled_s = MOST_TIMEOUT_S if self.stalled_after_s is None else self.stalled_after_s
        return min(max(LEAST_TIMEOUT_S, self.silence_s, stalled_s), MOST_TIMEOUT_S)

    @property
    def slowest_mbyte_s(self) -> float | None:
        """The rate of the slowest link during the run; None if nothing is shaped."""
        return min((link.rate_mbyte_s for link in self.slowest_links), default=None)

    @property
    def essential_ranks(self) -> list[int] | None:
        """The ranks without which the run cannot go on; None: all."""
        ranks = [place.rank for place in self.places if place.is_essential]
        return None if len(ranks) == len(self.places) else ranks

    @property
    def rank_order(self) -> list[str]:
        """The nodes in the order of their ranks."""
        return list(dict.fromkeys(place.node for place in self.places))

    def config(self, limits: Mapping[str, object]) -> dict[str, object]:
        """Return its part of run.yml: the experiment, without tokens and passwords, and derived values.

        `limits` are the resources that each node may use.
        """
        known = replace(self.program, argv=tuple(without_secrets(self.program.argv)))
        return {
            "kind": "run",
            "command": command_line(),
            **replace(self, program=known).experiment(limits),
            "settings": settings_document(self.link_state),
            "collective_timeout_s": round(self.timeout_s),
            "stalled_after_s": self.stalled_after_s,
            "traces": [
                {"event": event.words} | event.playback.record() | event.playback.trace.rates()
                for event in self.schedule
                if event.playback
            ],
        }

    def experiment(self, limits: Mapping[str, object]) -> dict[str, object]:
        """Return everything that decides the run, resolved; `launch -f` repeats the run from it."""
        spec, link_state, program = self.spec, self.link_state, self.program
        return {
            "cluster": {
                "name": spec.name,
                "nodes": spec.size,
                "slot": spec.slot,
                "image": spec.image,
            },
            "shaping": (link_state.link_spec.origin() if link_state.link_spec else {})
            | {"wire": link_state.wire, "tcp": link_state.tcp, "mtu": link_state.mtu},
            "program": {
                "name": program.name,
                "argv": list(program.argv),
                "folder": str(program.folder or ""),
                "resume": str(program.resume or ""),
                "order": str(program.order or ""),
            },
            "training": program.config,
            "verify": self.verify,
            "allow_undecided": self.allow_undecided,
            "nproc_per_node": self.places[0].local_world_size,
            "rank_order": self.rank_order,
            "max_results_bytes": self.max_results_bytes,
            "essential_ranks": self.essential_ranks,
            "max_restarts": self.max_restarts,
            "stall_timeout_s": self.stall_timeout_s,
            "shared": self.shared,
            "limits": limits,
            "schedule": [event.words for event in self.schedule],
            "events": [event_record(event) for event in self.schedule],
        }

    def orders(self, run: str) -> dict[RankPlacement, StartOrder]:
        """Return the order that node/rank.py gets on standard input, for each rank."""
        timeout_s = self.timeout_s
        return {
            place: StartOrder(
                run=run,
                argv=fill_arguments(self.program.argv, place, self.places),
                cwd=work_dir(run) if self.program.sends else HOME_FOLDER,
                run_dir=run_dir(run),
                env=rank_environment(
                    place,
                    self.places,
                    self.link_state.links,
                    run,
                    run_dir(run),
                    timeout_s,
                    self.slowest_mbyte_s,
                    silence_s=self.silence_s,
                    isolated=self.link_state.isolated,
                    max_restarts=self.max_restarts,
                    shared_dir=shared_dir(run) if self.shared else "",
                ),
            )
            for place in self.places
        }

    def document(self, run: str) -> dict[str, object]:
        """Return the plan for --dry-run: the same links and orders that a launch uses."""
        orders = self.orders(run)
        return {
            "plans": document(self.link_state.plans),
            "argv": list(self.program.argv),
            "arguments": {place.name: order.argv for place, order in orders.items()},
            "rank_order": self.rank_order,
            "collective_timeout_s": round(self.timeout_s),
            "stalled_after_s": self.stalled_after_s,
            "essential_ranks": self.essential_ranks,
            "max_restarts": self.max_restarts,
            "environment": {place.name: order.env for place, order in orders.items()},
        }

    def metrics_file(self, run: str) -> str:
        """Return the path of rank 0's metrics on its node."""
        return f"{run_dir(run)}/{self.places[0].file(METRICS)}"


def make_job(
    experiment: Experiment, spec: ClusterSpec, order: Sequence[str], link_state: LinkState
) -> Job:
    """Return the plan of an experiment on these nodes, in rank order, over these links.

    Raises:
        UsageError: the number of ranks or restarts or `max_results` is invalid, an essential rank does not exist, or
            there shall be restarts although all ranks are essential.
    """
    program = experiment.program
    places = place_ranks(order, experiment.nproc_per_node, program.essential_ranks)
    return Job(
        spec,
        program,
        places,
        link_state,
        experiment.schedule,
        experiment.verify,
        parse_max_results(experiment.max_results),
        experiment.allow_undecided,
        resolve_max_restarts(experiment.max_restarts, places),
        experiment.stall_timeout_s,
        experiment.shared,
    )


def _lasts_s(event: Event) -> float:
    """Return how long an event may slow a collective; of a trace that loops, one pass at most."""
    if event.playback is not None:
        return min(event.playback.lasts_s, event.playback.trace.seconds)
    return event.for_s or 0.0
