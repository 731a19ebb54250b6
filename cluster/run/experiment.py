"""One launch as requested by flags, experiment.yml, an earlier run's run.yml, or from Python. A pure value."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.run.launch_words import LOOK
from cluster.run.program import Program
from cluster.run.request import Request
from cluster.run.results import MOST_RESULTS
from cluster.schedule.events import Event


@dataclass(frozen=True)
class Experiment:
    """A cluster and what a launch does on it; once the cluster is up, it becomes a `cluster.run.job.Job`.

    Attributes:
        request: the cluster, its links and its nodes' limits; what it leaves out stays as it is.
        program: what every rank runs.
        schedule: changes to links and nodes during the run.
        verify: how the links are verified first: a key of `cluster.run.launch_words.VERIFICATIONS`.
        allow_undecided: whether the run goes on over undecided links: the host was too busy to tell if they hold.
        nproc_per_node: number of ranks on each node.
        rank_order: nodes in the order of their ranks, as node1,node3,node2, or best; None: the nodes' own order.
        max_results: the most that is fetched from one node, as 500m.
        max_restarts: how often each rank that is not essential is restarted after a failure; None: the default.
        stall_timeout_s: seconds without any activity after which the run is ended; 0: never; None: the default.
        shared: whether all ranks share a folder.
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
