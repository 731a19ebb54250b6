"""One launch as it is asked for: by flags, experiment.yml, an earlier run's run.yml, or from Python. A pure value."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.run.launch_words import LOOK
from cluster.run.program import Program
from cluster.run.request import Request
from cluster.run.results import MOST_RESULTS
from cluster.schedule.events import Event


@dataclass(frozen=True)
class Experiment:
    """A cluster, and what a launch does on it; `cluster.run.job.Job` is what becomes of it once the cluster is up.

    Attributes:
        request: the cluster, its links and its nodes' limits; what it leaves open stays as it is.
        program: what every rank runs.
        schedule: what happens to links and nodes meanwhile.
        verify: whether the links are measured first: a word of `cluster.run.launch_words.VERIFICATIONS`.
        allow_undecided: whether it goes on over links of which a busy host lets nobody tell whether they are as asked.
        nproc_per_node: how many ranks each node has.
        rank_order: nodes as their ranks follow one another, node1,node3,node2, or best; None: as the nodes do.
        max_results: how much of what ranks left is fetched of one node at most.
        max_restarts: how often each rank that is not essential is started again after a failure; None: as usual.
        stall_timeout_s: after so long without anything moving the run is ended; 0: never; None: as usual.
        shared: whether all ranks have a folder in common.
    """

    request: Request
    program: Program
    schedule: Sequence[Event] = ()
    verify: str = LOOK
    allow_undecided: bool = False
    nproc_per_node: int = 1
    rank_order: str | None = None
    max_results: str = MOST_RESULTS
    max_restarts: int | None = None
    stall_timeout_s: float | None = None
    shared: bool = False
