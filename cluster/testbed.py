"""A cluster as a Python object; every verb of the command line is one of its methods.

    from cluster import Cluster, training

    with Cluster(nodes=3, profile="mobile") as c:
        run = c.launch(training(["--steps", "40"]))
        print(run.summary["test_accuracy"])

A `with` block takes down at its end what it brought up; a cluster that was there before stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from cluster.bringup import reach_nodes
from cluster.changes import Change, change_plans, check_pairs, undo_changes
from cluster.compose_process import ComposeUp
from cluster.console import Console
from cluster.engine import Engine
from cluster.errors import ClusterError, PrerequisiteError
from cluster.fleet import Fleet
from cluster.making import look, make_cluster
from cluster.node_limits import Asked, Limit, make_wish
from cluster.reconcile import CONNECT_TIMEOUT_S
from cluster.removal import remove_cluster
from cluster.request import Request
from cluster.shaping import Shape, apply_plans, apply_some, clear_links, read_shape, refuse_replayed
from cluster.spec import DEFAULT_NAME, ClusterSpec
from cluster.wanted import Wanted, link_plans, make_wanted, refuse_unheard

if TYPE_CHECKING:
    from cluster.contract.verdicts import Contract
    from cluster.program import Program
    from cluster.replay import Ended
    from cluster.run import Run
    from cluster.schedule import Event
    from cluster.traces import Playback


class Cluster:
    """N nodes, their links, and what can be done with them.

    Args:
        name: clusters with different names live side by side.
        nodes: how many; None is as many as there are, or 3.
        profile: what the links shall be, by name or file; None leaves them as they are.
        topology: which nodes have a link.
        seed: draws the links from the profile.
        wire: what delays and drops: netem, nfqueue, or auto.
        isolated: whether nodes without a link cannot reach each other.
        image: the nodes' image, one of your own built FROM gradwire-node; None is gradwire-node itself.
        cpus: how many processors a node may use, for all or by node ({"node3": 0.5}; None: all there are); a node that
            is not named keeps its limit.
        memory: how much memory, likewise ("1g", {"node2": "512m"}).
        slot: decides subnet and ports; None is where the cluster is, or the first that is free.
        console: where messages go.

    Raises:
        UsageError: a name or a number that cannot be, before anything is started.
    """

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        *,
        nodes: int | None = None,
        profile: str | None = None,
        topology: str = "full",
        seed: int = 1,
        wire: str = "auto",
        isolated: bool = False,
        image: str | None = None,
        cpus: Asked = None,
        memory: Asked = None,
        slot: int | None = None,
        console: Console | None = None,
    ) -> None:
        wanted = make_wanted(profile, topology, seed, wire, isolated=isolated) if profile else None
        if wanted is None:
            refuse_unheard(topology, wire, isolated=isolated)
        self.name = name
        self.request = Request(name, nodes, slot, image, wanted, make_wish(cpus, memory))
        self.console = console or Console()
        self.was_there = False
        self._is_ours = False
        self._engine: Engine | None = None
        self._spec: ClusterSpec | None = None
        self._fleet: Fleet | None = None
        self.shape_at_up: Shape | None = None

    @property
    def engine(self) -> Engine:
        """The Docker engine; asked for at first use."""
        if self._engine is None:
            self._engine = Engine()
        return self._engine

    @property
    def spec(self) -> ClusterSpec:
        """What the cluster is.

        Raises:
            ClusterError: it is not up.
        """
        if self._spec is None:
            self._spec = self.engine.cluster(self.name)
        if self._spec is None:
            raise ClusterError(
                f"no cluster {self.name!r} is up", f"python -m cluster.up --name {self.name}"
            )
        return self._spec

    @property
    def fleet(self) -> Fleet:
        """SSH to all nodes; logs in at first use.

        Raises:
            ClusterError: the cluster is not up; NodeError: a node does not answer.
        """
        if self._fleet is None:
            self._fleet = reach_nodes(self.engine, self.spec, CONNECT_TIMEOUT_S)
        return self._fleet

    def planned(self) -> ClusterSpec:
        """What `up` would make, or find; where no engine answers, what it would make first of all."""
        try:
            return look(self.engine, self.request)[1]
        except PrerequisiteError:
            return self.request.spec(None, ())

    def planned_limits(self, spec: ClusterSpec) -> dict[str, Limit]:
        """What each node of what is planned may use then."""
        try:
            now = self.engine.limits(self.engine.containers(self.name))
        except PrerequisiteError:
            now = {}
        return self.request.limits(spec, now)

    def up(self) -> Self:
        """Bring the cluster up, or bring it to what was asked for; then shape its links.

        Raises:
            ClusterError: what happened and what to try. Nothing half-made stays behind.
        """
        with ComposeUp(self.name) as compose:
            compose.get_ready()
            return self.up_with(compose)

    def up_with(self, compose: ComposeUp) -> Self:
        """The same, by a compose that may be ready already; raises as `up`."""
        self.close()
        self._spec = None
        made = make_cluster(self.engine, self.request, compose, self.console)
        self._spec, self._fleet, self.shape_at_up = made.spec, made.fleet, made.shape
        self.was_there = made.was_there
        return self

    def check_idle(self) -> None:
        """See that no run has the nodes that there are, before anything is changed; those that are broken have none.

        Raises:
            NodeError: one has; names it.
        """
        from cluster.ranks import refuse_busy

        try:
            fleet = self.fleet
        except ClusterError:
            return
        refuse_busy(fleet)

    def shape(self, wanted: Wanted | None) -> Shape:
        """Change the links of the running cluster; None takes all shaping off."""
        if wanted is None:
            return clear_links(self.fleet)
        return apply_plans(self.fleet, link_plans(self.spec.nodes, wanted))

    def change(self, changes: Sequence[Change]) -> Shape:
        """Change single links of the running cluster; what is under way on them is not lost.

        Raises:
            UsageError: there is no such link; nothing has been changed.
        """
        apply_some(self.fleet, change_plans(self.links().plans, changes))
        return self.links()

    def undo(self, before: Shape, changes: Sequence[Change]) -> Shape:
        """Take changes back, each value by itself, and none that somebody has changed since."""
        now = self.links()
        apply_some(
            self.fleet, change_plans(now.plans, undo_changes(before.plans, now.plans, changes))
        )
        return self.links()

    def replay(self, playback: Playback) -> Ended:
        """Play a trace on links of the running cluster, to its end; then they are as before, also when interrupted.

        Raises:
            UsageError: there is no such link; nothing has been changed.
            NodeError: a node could not, or another replay runs there.
        """
        from cluster.replay import Replay

        check_pairs(playback.pairs, [(link.src, link.dst) for link in self.links().links])
        with Replay(self.fleet, {"trace": playback}) as replay:
            replay.begin("trace")
            while not (ended := replay.ended(timeout_s=None)):
                pass
        return ended[0]

    def links(self) -> Shape:
        """The links in force, as the nodes themselves tell."""
        return read_shape(self.fleet)

    def verify(self, effort: str = "normal", budget_s: float | None = None) -> Contract:
        """Measure every link and hold it against what was asked of it.

        Args:
            effort: quick, normal or full.
            budget_s: how long it may take with TCP on every link; where it would be longer, TCP is tried on one link
                out of each node. None: as `cluster.contract.timetable.budget_s` says.
        """
        from cluster.contract.measure import measure_contract
        from cluster.contract.probes import EFFORTS

        shape = self.links()
        refuse_replayed(shape, "the links cannot be measured")
        return measure_contract(self.fleet, shape, self.console, EFFORTS[effort], budget_s)

    def launch(
        self,
        program: Program | None = None,
        *,
        verify: bool = True,
        schedule: Sequence[Event] = (),
        nproc_per_node: int = 1,
    ) -> Run:
        """Run a program on every node; None trains with the defaults. See `cluster.run`.

        Args:
            program: what every rank runs.
            verify: whether the links are measured first.
            schedule: what happens to links and nodes meanwhile: `cluster.schedule_file.load_schedule`.
            nproc_per_node: how many ranks each node has.
        """
        from cluster.program import training
        from cluster.ranks import refuse_busy
        from cluster.run import run_program

        refuse_busy(self.fleet)
        program = program or training([])
        shape = self.links()
        return run_program(
            self.engine,
            self.spec,
            self.fleet,
            shape,
            program,
            self.console,
            verify=verify,
            schedule=schedule,
            nproc_per_node=nproc_per_node,
        )

    def down(self) -> list[str]:
        """Remove everything of this cluster; returns what was removed.

        Raises:
            ClusterError: the engine refused, or the keys belong to somebody else.
        """
        self.close()
        self._spec = None
        return remove_cluster(self.engine, self.name)

    def close(self) -> None:
        """Close the connections; the cluster stays up."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None

    def __enter__(self) -> Self:
        self.up()
        self._is_ours = not self.was_there
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._is_ours:
            self.down()
