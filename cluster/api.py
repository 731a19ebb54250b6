"""The Python API: a cluster as an object. up, shape, verify, launch and down are its methods.

    from cluster import Cluster, training

    with Cluster(nodes=3, profile="mobile") as c:
        run = c.launch(training(["--steps", "40"]))
        print(run.summary["test_accuracy"])

At its end a `with` block removes the cluster if it created it; a cluster that already existed stays up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster.base.console import Console, command_line
from cluster.base.errors import ClusterError, PrerequisiteError, UsageError, shown, unknown
from cluster.base.spec import DEFAULT_NAME, ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.ownership import check_checkout
from cluster.engine.resources import Limit, ResourceValue, make_resource_request
from cluster.hosts.connect import compose_for, connect_engine, has_ended, hosts_of
from cluster.hosts.hosts_file import load_hosts
from cluster.lifecycle.create import create_cluster, inspect_cluster
from cluster.lifecycle.exclusive_lock import ClusterLock
from cluster.lifecycle.provision import reach_nodes
from cluster.lifecycle.reconcile import CONNECT_TIMEOUT_S
from cluster.lifecycle.removal import remove_cluster
from cluster.links.changes import Change, change_plans, check_pairs, undo_changes
from cluster.links.link_spec import LinkSpec, make_link_spec, reject_unused_link_options
from cluster.run.ranks import refuse_busy
from cluster.run.request import Request
from cluster.shaping.cluster_links import inspect_cluster_links, read_cluster_links
from cluster.shaping.link_record import plans_to_be, read_record, write_record
from cluster.shaping.link_state import (
    LinkState,
    apply_plans,
    apply_some,
    clear_links,
    planned_link_state,
    refuse_replayed,
)
from cluster.shaping.restore import refuse_lost, restore_limits, restore_links
from cluster.shaping.temporary_changes import (
    TemporaryChange,
    forget,
    note_temporary_change,
    restoring,
)
from cluster.ssh.fleet import Fleet
from protocol.link_report import Marks
from protocol.node_plan import NodePlan

if TYPE_CHECKING:
    from cluster.contract.verdicts import Contract
    from cluster.links.traces import Playback
    from cluster.live.live_run import LiveOptions
    from cluster.run.experiment import Experiment
    from cluster.run.program import Program
    from cluster.run.runner import Run
    from cluster.schedule.events import Event
    from cluster.shaping.trace_player import TraceExit


class Cluster:
    """N nodes, their links, and the operations on them.

    Args:
        name: the cluster's name; clusters with different names run side by side.
        nodes: the number of nodes; None: as many as exist, or 3.
        profile: the links' profile, a name or a file; None leaves the links as they are.
        topology: which nodes have a link, a name or a file.
        seed: draws the links from the profile.
        wire: what impairs incoming packets: netem, nfqueue, or auto.
        isolated: whether nodes without a link cannot reach each other.
        image: the nodes' image, your own one built FROM gradwire-node; None: gradwire-node itself.
        cpus: the number of processors that a node may use, for all nodes or by node ({"node3": 0.5}; a value of None:
            all processors); a node that is not named keeps its limit.
        memory: the memory, likewise ("1g", {"node2": "512m"}).
        gpus: the GPUs, likewise ("all", {"node1": "0", "node2": "1"}).
        hosts: a file that names the machines for the nodes; None: where the cluster is, or this machine.
        slot: determines subnet and ports; None: the existing cluster's slot, or the first free one.
        console: where messages go.
        force: change, measure and remove the cluster even while another command or a run uses it.

    Raises:
        UsageError: a name or a number is invalid; raised before anything is started.
    """

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        *,
        nodes: int | None = None,
        profile: str | Path | None = None,
        topology: str | Path = "full",
        seed: int = 1,
        wire: str = "auto",
        isolated: bool = False,
        image: str | None = None,
        cpus: ResourceValue = None,
        memory: ResourceValue = None,
        gpus: ResourceValue = None,
        hosts: str | Path | None = None,
        slot: int | None = None,
        console: Console | None = None,
        force: bool = False,
    ) -> None:
        for what, number in {"nodes": nodes, "slot": slot}.items():
            if number is not None and type(number) is not int:
                raise UsageError(f"{what} is {shown(number)}", f"a whole number: {what}=3")
        link_spec = None
        if profile is None:
            reject_unused_link_options(topology, seed, wire, isolated=isolated)
        else:
            link_spec = make_link_spec(profile, topology, seed, wire, isolated=isolated)
        request = Request(
            name,
            nodes,
            slot,
            image,
            link_spec,
            make_resource_request(cpus, memory, gpus),
            load_hosts(Path(hosts)) if hosts else None,
        )
        self._begin(request, console, force=force)

    @classmethod
    def of(
        cls, experiment: Experiment, console: Console | None = None, *, force: bool = False
    ) -> Self:
        """Return the cluster that an experiment asks for, not brought up yet."""
        cluster = cls.__new__(cls)
        cluster._begin(experiment.request, console, force=force)
        return cluster

    def _begin(self, request: Request, console: Console | None, *, force: bool) -> None:
        self.name, self.request = request.name, request
        self.console = console or Console()
        self.was_there = False
        self.alone = ClusterLock(request.name, hosts=request.hosts, force=force)
        """The cluster's lock: no other command changes the cluster in its `with` block; methods that do take it."""
        self._force = force
        self._is_ours = False
        self._engine: Engine | None = None
        self._spec: ClusterSpec | None = None
        self._fleet: Fleet | None = None
        self.link_state_at_up: LinkState | None = None

    @property
    def engine(self) -> Engine:
        """The Docker engine of this machine or of the cluster's hosts; connected on first use."""
        self._drop_ended_engine()
        if self._engine is None:
            self._engine = connect_engine(self.name, self.request.hosts)
        return self._engine

    @property
    def spec(self) -> ClusterSpec:
        """The spec of the running cluster.

        Raises:
            ClusterError: the cluster is not up, or belongs to another checkout.
        """
        if self._spec is None:
            check_checkout(self.engine.containers(self.name))
            self._spec = self.engine.cluster(self.name)
        if self._spec is None:
            raise ClusterError(
                f"no cluster {self.name!r} is up", f"python -m cluster.up --name {self.name}"
            )
        return self._spec

    @property
    def fleet(self) -> Fleet:
        """SSH connections to all nodes; logs in on first use.

        Raises:
            ClusterError: the cluster is not up; NodeError: a node does not answer.
        """
        self._drop_ended_engine()
        if self._fleet is None:
            self._fleet = reach_nodes(self.engine, self.spec, CONNECT_TIMEOUT_S)
        return self._fleet

    def compose(self) -> ComposeUp:
        """Return the compose call that creates the containers; on this machine it needs no engine connection first."""
        if hosts_of(self.name, self.request.hosts) is None:
            return ComposeUp(self.name)
        return compose_for(self.name, self.engine)

    def planned(self) -> ClusterSpec:
        """Return the spec that `up` would create or find; if no engine answers, as if no cluster existed."""
        try:
            return inspect_cluster(self.engine, self.request)[1]
        except PrerequisiteError:
            return self.request.spec(None, ())

    def planned_limits(self, spec: ClusterSpec) -> dict[str, Limit]:
        """Return the resource limits that each node of a planned cluster will have."""
        try:
            now = self.engine.limits(self.engine.containers(self.name))
        except PrerequisiteError:
            now = {}
        return self.request.limits(spec, now)

    def planned_link_state(self, spec: ClusterSpec) -> LinkState:
        """Return a planned cluster's links: those requested, else those on record; raises as `plans_to_be`."""
        return planned_link_state(plans_to_be(spec, self.request.link_spec))

    def up(self) -> Self:
        """Bring the cluster up, or reconcile it with what is asked for; then shape its links.

        Raises:
            ClusterError: says what happened and what to try. A creation that failed half-way is rolled back.
        """
        with self.compose() as compose:
            compose.get_ready()
            return self.up_with(compose)

    def up_with(self, compose: ComposeUp) -> Self:
        """Bring the cluster up as `up` does, with a compose call that may have been started already."""
        self.close()
        self._spec = None
        with self.alone:
            made = create_cluster(
                self.engine, self.request, compose, self.console, force=self._force
            )
        self._spec, self._fleet, self.link_state_at_up = made.spec, made.fleet, made.link_state
        self.was_there = made.was_there
        return self

    def settle(self, found: LinkState | None = None) -> LinkState:
        """Check that no run uses the nodes, undo what restarts and killed commands left; return the links in force.

        Args:
            found: the links that have just been read; None: they are read here.

        Raises:
            NodeError: a run uses a node, or a node does not answer.
            ClusterError: a killed command left links changed while a temporary change is going on.
        """
        killed = self._settle_limits()
        link_state = restore_links(self.fleet, self.spec, self.console, found)
        forget(killed)
        return link_state

    def _settle_limits(self) -> Sequence[TemporaryChange]:
        """Check that no run uses the nodes, and restore CPU limits; return the changes of killed commands."""
        if not self._force:
            refuse_busy(self.fleet)
        return restore_limits(self.engine, self.spec, self.console)

    def shape(self, link_spec: LinkSpec | None) -> LinkState:
        """Change the links of the running cluster; None removes all shaping.

        Raises:
            ClusterError: the cluster is in use, or a node could not apply its links.
        """
        with self.alone:
            killed = self._settle_limits()
            plans = plans_to_be(self.spec, link_spec) if link_spec else {}
            link_state = apply_plans(self.fleet, plans) if plans else clear_links(self.fleet)
            write_record(self.spec, plans)
            forget(killed)
        return link_state

    def change(self, changes: Sequence[Change]) -> LinkState:
        """Change single links of the running cluster; packets in flight on them are not lost.

        Raises:
            UsageError: there is no such link; nothing has been changed.
            ClusterError: the cluster is in use, or a node could not apply its links.
        """
        with self.alone:
            apply_some(self.fleet, change_plans(self.settle().plans, changes))
            recorded = read_record(self.spec) or {}
            write_record(self.spec, recorded | change_plans(recorded, changes))
            return self.links()

    def change_for(self, changes: Sequence[Change], seconds: float) -> LinkState:
        """Change single links for some seconds; then, or on Ctrl-C, restore each value not changed again since.

        Other commands can use the cluster meanwhile; they leave these links as they are. What is restored is what was
        asked for without a time: a value from before may be another such change's. Raises as `change`.
        """
        with self.alone:
            plans = change_plans(self.settle().plans, changes)
            note = note_temporary_change(self.spec, command_line())
        try:
            apply_some(self.fleet, plans)
            self.console.say(f"changed for {seconds:g} s")
            time.sleep(seconds)
        finally:
            with restoring(note):
                now = self.links().plans
                undone = undo_changes(read_record(self.spec) or {}, now, changes)
                apply_some(self.fleet, change_plans(now, undone))
        return self.links()

    @contextmanager
    def changed(
        self, change: Callable[[Mapping[str, NodePlan]], Mapping[str, NodePlan]]
    ) -> Iterator[None]:
        """Change links within the block and restore those asked for after it, also on an interrupt.

        No other command can use the cluster meanwhile. If we are killed, the next command undoes the change.

        Args:
            change: gets the plans in force, returns the new plans of the nodes whose plans change.

        Raises:
            UsageError: there is no such link; nothing has been changed.
            ClusterError: the cluster is in use, or a node could not apply its links.
        """
        with self.alone:
            in_force = self.settle().plans
            plans, asked = change(in_force), {**in_force, **(read_record(self.spec) or {})}
            note = note_temporary_change(self.spec, command_line())
            try:
                apply_some(self.fleet, plans)
                yield
            finally:
                with restoring(note):
                    apply_some(self.fleet, {node: asked[node] for node in plans})

    def replay(self, playback: Playback) -> TraceExit:
        """Play a trace on links of the running cluster to its end; then restore them, also on an interrupt.

        Other commands can use the cluster once it plays, but not measure its links.

        Raises:
            UsageError: there is no such link, or it would have no room for its jitter; nothing has been changed.
            NodeError: a node could not play it, or another replay runs there.
        """
        from cluster.shaping.trace_player import TracePlayer

        with ExitStack() as playing:
            # Alone until nodes tell that a trace plays: a launch would measure the links meanwhile.
            with self.alone:
                links = self.settle().links
                check_pairs(playback.pairs, [link.ends for link in links])
                playback.check(links)
                replay = playing.enter_context(TracePlayer(self.fleet, {"trace": playback}))
                replay.begin("trace")
            return replay.wait_for_end("trace")

    def links(self) -> LinkState:
        """Return the links in force, as read from the nodes."""
        return read_cluster_links(self.fleet, self.spec)

    def verify(self, effort: str = "normal", budget_s: float | None = None) -> Contract:
        """Measure every link and compare it with what was asked for.

        Args:
            effort: quick, normal or full.
            budget_s: how many seconds TCP on every link may take; if it would take longer, TCP is tried on one link out
                of each node or fewer. None: as `cluster.contract.probe_schedule.budget_s` says.

        Raises:
            UsageError: there is no such effort, or no such budget. ClusterError: the links are not in force as
                recorded.
        """
        from cluster.contract.probe_plan import EFFORTS
        from cluster.contract.probe_schedule import check_budget
        from cluster.contract.prover import Prover

        if effort not in EFFORTS:
            raise unknown("effort", effort, EFFORTS)
        check_budget(budget_s, EFFORTS[effort])
        with self.alone:
            link_state, marks = self._links_to_measure()
            prover = Prover(self.engine, self.spec, self.fleet, self.console)
            return prover.measure(link_state, EFFORTS[effort], budget_s, marks).contract

    def _links_to_measure(self) -> tuple[LinkState, Mapping[str, Marks] | None]:
        """Return the links in force, and their marks if they have been read since the last change.

        Undoes what a killed command left, but refuses if a restart has removed links.
        """
        found, marks = inspect_cluster_links(self.fleet, self.spec)
        refuse_replayed(found, "the links cannot be measured")
        refuse_lost(self.spec, found)
        restored = self.settle(found)
        return restored, marks if restored is found else None

    def launch(
        self,
        program: Program | Experiment | None = None,
        *,
        verify: bool | str = True,
        allow_undecided: bool = False,
        schedule: Sequence[Event] = (),
        nproc_per_node: int = 1,
        max_results: str = "10g",
        stall_timeout_s: float | None = None,
        max_restarts: int | None = None,
        rank_order: str | None = None,
        shared: bool = False,
        live_options: LiveOptions | None = None,
    ) -> Run:
        """Run a program on every node; None trains with the defaults. See `cluster.run.runner`.

        Args:
            program: what every rank runs; or an experiment of this cluster, which determines all other arguments.
            verify: look measures all links, or only takes a look if they were proved and nothing has changed since;
                full always measures them; none does neither. True is look, False is none.
            allow_undecided: run even if the host was too busy to tell whether some links are as asked.
            schedule: changes of links and nodes during the run: `cluster.schedule.schedule_file.load_schedule`.
            nproc_per_node: the number of ranks on each node.
            max_results: the most that is fetched of the results of one node's ranks ("500m").
            stall_timeout_s: end the run after a stall of this many seconds, 3 or more; 0: only report it; None: as
                long as a collective may take, at least ten minutes for a program of your own.
            max_restarts: how often each rank that is not essential is restarted after a failure; None: 3 times.
            rank_order: the nodes in rank order: node1,node3,node2, or best, by the links; None: the nodes' own order.
            shared: give all ranks a common folder, $GRADWIRE_SHARED_DIR, whose traffic uses no link.
            live_options: the live view; None: no view here, but `python -m cluster.watch` can follow the run.

        Raises:
            UsageError: the experiment is of another cluster or comes with other arguments, or there is no such
                verification.
        """
        from cluster.run.experiment import Experiment
        from cluster.run.launch_words import parse_verify
        from cluster.run.program import training

        asked = Experiment(
            self.request,
            program.program if isinstance(program, Experiment) else program or training([]),
            schedule,
            parse_verify(verify),
            allow_undecided,
            nproc_per_node,
            rank_order,
            max_results,
            max_restarts,
            stall_timeout_s,
            shared,
        )
        if isinstance(program, Experiment):
            if asked != Experiment(program.request, program.program):
                raise UsageError(
                    "launch got an experiment of another cluster, or other arguments beside it",
                    "with Cluster.of(experiment) as c: c.launch(experiment)",
                )
            asked = program
        return self.execute(asked, live_options)

    def execute(self, experiment: Experiment, live_options: LiveOptions | None = None) -> Run:
        """Run an experiment on the cluster as it is, over the links in force.

        Raises:
            UsageError: its stall timeout is out of bounds. ClusterError: it repeats a run, on another cluster.
        """
        from cluster.run.launch_again import Repetition, checked_stall_timeout_s
        from cluster.run.runner import LIVE, run_program

        checked_stall_timeout_s(experiment.stall_timeout_s, "stall_timeout_s")
        with self.alone:
            link_state = self.settle()
            if isinstance(experiment, Repetition):
                limits = CpuLimits(self.engine, self.name).document()
                experiment.check(self.spec, link_state.links, limits)
            return run_program(
                self.engine,
                self.spec,
                self.fleet,
                link_state,
                experiment,
                self.console,
                live_options or LIVE,
            )

    def down(self) -> list[str]:
        """Remove everything of this cluster; return what was removed. With `force`, also if some hosts are lost.

        Raises:
            ClusterError: the cluster is in use or another checkout's, the engine refused, or the keys belong to another
                user.
        """
        with self.alone:
            self.close()
            self._spec = None
            if self._force:
                self._engine = connect_engine(self.name, self.request.hosts, partly=True)
            try:
                return remove_cluster(self.engine, self.name, self.console, force=self._force)
            finally:
                self._engine = None  # the next cluster of this name may be on other machines

    def close(self) -> None:
        """Close the connections; the cluster stays up."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None

    def _drop_ended_engine(self) -> None:
        """Forget an engine whose connection to a host has ended, and the fleet; the next use connects again."""
        if self._engine is not None and has_ended(self._engine):
            self.close()
            self._engine = None

    def __enter__(self) -> Self:
        self.up()
        self._is_ours = not self.was_there
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if not self._is_ours:
            return
        try:
            self.down()
        except ClusterError as failure:
            if error is None:
                raise
            self.console.say(f"cluster {self.name!r} stays up: {failure}")  # `error` matters more
