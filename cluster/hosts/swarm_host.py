"""The engine of one host of several: its swarm, and the network that its containers share with those of other hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cluster.base.errors import ClusterError, SlotTaken
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import LABEL_SLOT, network_labels
from cluster.engine.container import is_number
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.swarm_plan import IN, INGRESS, MARK, OUT, Member, Overlay, overlay_name
from protocol.labels import LABEL_CLUSTER

SWARM_PORT = 2377
READY = "ready"  # as the engine calls a node of the swarm that it hears
LABEL_SWARM = "gradwire.swarm"
"""Label of a swarm that we created; of MARK and of a docker_gwbridge of ours, with the manager's address as value."""
LABEL_HOLDER = "gradwire.holder"
BRIDGE = "docker_gwbridge"
"""Connects containers on a swarm's network to their host. Docker makes it on each host, and never removes it."""
BRIDGE_OPTIONS = {
    "com.docker.network.bridge.name": BRIDGE,
    "com.docker.network.bridge.enable_icc": "false",  # containers talk on the data network only
    "com.docker.network.bridge.enable_ip_masquerade": "true",
}
INGRESS_POOL = "10.78.0.0/16"  # for the ingress network; Docker's default pool is all of 10.0.0.0/8
# An engine whose manager has been silent may need longer to leave than it gives itself; then it is still in the swarm.
TOO_SLOW, NOT_IN, LEAVES = "context deadline exceeded", "not part of a swarm", 3
HELD_S = 3600  # longer than Compose may take; the holder of a killed command ends after that


class SwarmHost(HostEngine):
    """The engine of a host that shares a network with others; raises like HostEngine."""

    def member(self, gone: Collection[str] = ()) -> Member:
        """Return what the engine says of its swarm; hosts with the `gone` addresses never count as ready."""
        with self.errors():
            swarm = self._api.info().get("Swarm") or {}
            networks = self._api.networks()
        state = swarm.get("LocalNodeState") or OUT
        overlays = [n["Name"] for n in networks if n["Driver"] == "overlay"]
        bridges = [n for n in networks if n["Name"] == BRIDGE]
        is_manager = state == IN and bool(swarm.get("ControlAvailable"))
        labels = (swarm.get("Cluster") or {}).get("Spec", {}).get("Labels") or {}
        nodes = self._nodes(gone) if is_manager else {}
        return Member(
            self.host_name,
            state,
            swarm.get("NodeID") or "",
            is_manager,
            is_manager and LABEL_SWARM in labels,
            frozenset(node_id for node_id, state in nodes.items() if state == READY),
            frozenset(nodes),
            tuple(name for name in overlays if name != INGRESS),
            any(is_for(mark, swarm) for mark in [*bridges, *self._marks()]),
        )

    def make_swarm(self) -> None:
        """Create a swarm of this host alone; raises like HostEngine."""
        address = f"{self.host.internal_ip}:{SWARM_PORT}"
        self._make_marks(address)
        spec = self._api.create_swarm_spec(labels={LABEL_SWARM: "made by gradwire"})
        with self.errors():
            self._api.init_swarm(
                advertise_addr=self.host.internal_ip,
                listen_addr=address,
                default_addr_pool=[INGRESS_POOL],
                subnet_size=24,
                swarm_spec=spec,
            )

    def worker_token(self) -> tuple[str, str]:
        """Return the token with which another host joins this manager's swarm, and the manager's address."""
        with self.errors():
            address = self._api.info()["Swarm"]["NodeAddr"]
            return self._api.inspect_swarm()["JoinTokens"]["Worker"], f"{address}:{SWARM_PORT}"

    def join_swarm(self, token: str, address: str) -> None:
        """Join another host's swarm.

        Raises:
            ClusterError: that host cannot be reached.
        """
        self._make_marks(address)
        own = self.host.internal_ip
        try:
            with self.errors():
                self._api.join_swarm(
                    remote_addrs=[address],
                    join_token=token,
                    advertise_addr=own,
                    listen_addr=f"{own}:{SWARM_PORT}",
                )
        except ClusterError as error:
            raise ClusterError(
                f"host {self.host_name} could not join the swarm at {address}: {error.message}",
                "let hosts reach one another by internal_ip: open 2377/tcp, 7946/tcp and udp, 4789/udp",
            ) from error

    def leave_swarm(self) -> None:
        """Leave the swarm, and remove what Docker and we would leave behind."""
        self._leave()
        self.remove_traces()

    def remove_traces(self) -> None:
        """Remove what Docker and we leave on a host that is not, or no longer, in a swarm of ours.

        An engine that leaves a swarm while it creates the ingress network keeps that network until it leaves another
        swarm: here one of this host alone.
        """
        if self._has_ingress():
            self.make_swarm()
            self._leave()
        self._remove_marks()

    def _leave(self) -> None:
        for more in reversed(range(LEAVES)):
            try:
                with self.errors():
                    self._api.leave_swarm(force=True)
                break
            except ClusterError as error:
                if more < LEAVES - 1 and NOT_IN in error.message:
                    break  # the try before has come through after all
                if TOO_SLOW not in error.message or not more:
                    raise

    def _has_ingress(self) -> bool:
        with self.errors():
            return any(one["Name"] == INGRESS for one in self._api.networks(names=[INGRESS]))

    def forget_nodes(self, ids: Sequence[str]) -> None:
        """Remove hosts that have left from this manager's list of nodes."""
        for node_id in ids:
            with suppress(ClusterError), self.errors():  # it never joined, or is removed already
                self._api.remove_node(node_id, force=True)

    def overlay(self, name: str) -> Overlay | None:
        """Return what a cluster's network was made for; None if there is none. Only managers see it at all times."""
        with self.errors():
            found = self._api.networks(filters={"label": [f"{LABEL_CLUSTER}={name}", LABEL_SLOT]})
        for network in found:
            slot, options = network["Labels"][LABEL_SLOT], network["Options"] or {}
            if network["Name"] == overlay_name(name) and is_number(slot):
                return Overlay(int(slot), "encrypted" in options)
        return None

    def make_overlay(self, spec: ClusterSpec, *, encrypted: bool) -> None:
        """Make the data network of a cluster, as the swarm's manager.

        Raises:
            SlotTaken: another network has its addresses. ClusterError: the engine refused.
        """
        config = {"Subnet": spec.subnet, "Gateway": spec.gateway, "IPRange": _free_range(spec)}
        try:
            with self.errors():
                self._api.create_network(
                    overlay_name(spec.name),
                    driver="overlay",
                    scope="swarm",
                    attachable=True,
                    options={"encrypted": ""} if encrypted else {},
                    labels=network_labels(spec),
                    ipam={"Driver": "default", "Config": [config]},
                )
        except ClusterError as error:
            if "overlap" not in error.message.lower():
                raise
            words = f"use another --slot: another network holds {spec.subnet}"
            raise SlotTaken(error.message, words) from error

    def hold_network(self, spec: ClusterSpec) -> None:
        """Make sure that Compose finds the cluster's network here.

        A worker knows a network only while a container uses it. On a worker this therefore starts a container, the
        holder, even if nodes use the network now: Compose may have to remove them.
        """
        if overlay_name(spec.name) in self.networks(spec.name) and self.member().is_manager:
            return
        self.release_network(spec.name)
        with self.errors():
            holder = self._api.create_container(
                spec.image,
                ["sleep", str(HELD_S)],
                entrypoint=[],
                name=f"{spec.project}-holder",
                labels={LABEL_HOLDER: spec.name},
                host_config=self._api.create_host_config(
                    network_mode=overlay_name(spec.name), auto_remove=True, cap_drop=["ALL"]
                ),
            )
            self._api.start(holder["Id"])

    def release_network(self, name: str) -> list[str]:
        """Remove the holder that `hold_network` has started; return its name, if there is one."""
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [f"{LABEL_HOLDER}={name}"]})
            for item in found:
                self._remove_container(item["Id"])
        return [str(item["Names"][0]).removeprefix("/") for item in found]

    def _remove_marks(self) -> None:
        """Remove MARK, and docker_gwbridge if we made it, which Docker would keep for ever."""
        with self.errors():
            for network in self._api.networks(filters={"label": [LABEL_SWARM]}):
                self._remove_bridge(network["Id"])
            for mark in self._marks():
                self._remove_volume(mark["Name"])

    def remove_overlay(self, name: str) -> bool:
        """Remove a cluster's network as the manager; return False if containers, even just removed, still use it."""
        import docker.errors

        try:
            with self.errors():
                self._remove_network(overlay_name(name))
        except ClusterError as error:
            if not isinstance(error.__cause__, docker.errors.APIError):
                raise
            return False
        return True

    def _make_marks(self, manager: str) -> None:
        """Note that we make this host join a swarm, before it does.

        The bridge that Docker would make gets a label, so that it is removed later. If there is a bridge already, it
        stays without one; MARK is there in any case.
        """
        self._remove_marks()  # of an earlier swarm of ours
        labels = {LABEL_SWARM: manager}
        with self.errors():
            self._api.create_volume(MARK, labels=labels)
            if any(n["Name"] == BRIDGE for n in self._api.networks(names=[BRIDGE])):
                return
            self._api.create_network(BRIDGE, driver="bridge", options=BRIDGE_OPTIONS, labels=labels)

    def _remove_bridge(self, network_id: str) -> None:
        """Remove a docker_gwbridge of ours, of a swarm that the host has left: nothing needs it any more.

        The engine itself forgets endpoints there if a container is removed while it is being connected.
        """
        import docker.errors

        with suppress(docker.errors.NotFound):
            for endpoint in (self._api.inspect_network(network_id)["Containers"] or {}).values():
                with suppress(docker.errors.APIError):  # it has just gone by itself
                    self._api.disconnect_container_from_network(
                        endpoint["Name"], network_id, force=True
                    )
        self._remove_network(network_id)

    def _marks(self) -> Sequence[Mapping[str, Any]]:
        with self.errors():
            found = self._api.volumes(filters={"label": [LABEL_SWARM]})["Volumes"] or ()
        return [volume for volume in found if volume["Name"] == MARK]

    def _nodes(self, gone: Collection[str]) -> dict[str, str]:
        """Return the state of each node of the swarm by its id, without those at the `gone` addresses."""
        with self.errors():
            nodes: Sequence[Mapping[str, Mapping[str, str]]] = self._api.nodes()
        here = [node for node in nodes if node["Status"].get("Addr") not in gone]
        return {str(node["ID"]): node["Status"]["State"] for node in here}


def is_for(mark: Mapping[str, Any], swarm: Mapping[str, Any]) -> bool:
    """Return whether a mark or bridge is ours and of this swarm, not of an earlier one that the host has left since."""
    manager = (mark.get("Labels") or {}).get(LABEL_SWARM)
    managers = [one.get("Addr") for one in swarm.get("RemoteManagers") or ()]
    is_out = (swarm.get("LocalNodeState") or OUT) == OUT
    return manager is not None and (is_out or manager in managers)


def _free_range(spec: ClusterSpec) -> str:
    """Return the addresses that Docker may assign on its own: beyond those of 199 nodes."""
    return f"10.77.{spec.slot}.224/27"
