"""A host among several: its engine, the swarm that it is in, and the network that its containers share with others'."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cluster.base.errors import ClusterError, SlotTaken
from cluster.base.spec import ClusterSpec, project_name
from cluster.engine.compose import network_labels
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.swarm_plan import IN, INGRESS, OUT, Member

SWARM_PORT = 2377
LABEL_SWARM = "gradwire.swarm"
"""Of a swarm that we made; and of a docker_gwbridge, with the address of the manager for whose swarm we made it."""
LABEL_HOLDER = "gradwire.holder"
BRIDGE = "docker_gwbridge"
"""By which containers of a swarm's network reach their host. Each host of a swarm has it, and keeps it afterwards."""
BRIDGE_OPTIONS = {
    "com.docker.network.bridge.name": BRIDGE,
    "com.docker.network.bridge.enable_icc": "false",  # containers meet on the data network, and nowhere else
    "com.docker.network.bridge.enable_ip_masquerade": "true",
}
INGRESS_POOL = (
    "10.78.0.0/16"  # of networks that nobody asked for; Docker's own choice is all of 10.0.0.0/8
)
HELD_S = 3600  # longer than compose may take; who is killed meanwhile leaves nothing for longer


class SwarmHost(HostEngine):
    """The engine of a host that shares a network with others; raises as HostEngine."""

    def member(self, gone: Collection[str] = ()) -> Member:
        """What it says of its swarm; hosts with the `gone` addresses are not ready, whatever it still believes."""
        with self.errors():
            swarm = self._api.info().get("Swarm") or {}
            networks = self._api.networks()
        state = swarm.get("LocalNodeState") or OUT
        overlays = [n["Name"] for n in networks if n["Driver"] == "overlay"]
        bridges = [n for n in networks if n["Name"] == BRIDGE]
        is_manager = state == IN and bool(swarm.get("ControlAvailable"))
        labels = (swarm.get("Cluster") or {}).get("Spec", {}).get("Labels") or {}
        return Member(
            self.host_name,
            state,
            swarm.get("NodeID") or "",
            is_manager,
            is_manager and LABEL_SWARM in labels,
            frozenset(self._ready_nodes(gone)) if is_manager else frozenset(),
            tuple(name for name in overlays if name != INGRESS),
            any(is_for(bridge, swarm) for bridge in bridges),
        )

    def make_swarm(self) -> None:
        """Make one of this host alone; raises as HostEngine."""
        address = f"{self.host.internal_ip}:{SWARM_PORT}"
        self._make_bridge(address)
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
        """With which another host joins this manager's swarm, and where it asks for that."""
        with self.errors():
            address = self._api.info()["Swarm"]["NodeAddr"]
            return self._api.inspect_swarm()["JoinTokens"]["Worker"], f"{address}:{SWARM_PORT}"

    def join_swarm(self, token: str, address: str) -> None:
        """Join that of another host.

        Raises:
            ClusterError: it cannot reach it.
        """
        self._make_bridge(address)
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
                "hosts reach one another by internal_ip: ports 2377/tcp, 7946/tcp and udp, 4789/udp",
            ) from error

    def leave_swarm(self) -> None:
        """Leave it, and take what that leaves behind."""
        with self.errors():
            self._api.leave_swarm(force=True)
        self.remove_bridge()

    def forget_nodes(self, ids: Sequence[str]) -> None:
        """Strike hosts off that have left this manager's swarm."""
        for node_id in ids:
            with suppress(ClusterError), self.errors():  # it was never there, or is struck off
                self._api.remove_node(node_id, force=True)

    def make_overlay(self, spec: ClusterSpec, *, encrypted: bool) -> None:
        """Make the data network of a cluster, by this manager.

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
            words = f"another network holds {spec.subnet}: another --slot"
            raise SlotTaken(error.message, words) from error

    def hold_network(self, spec: ClusterSpec) -> None:
        """See that Compose finds the cluster's network here: a worker knows of one only while a container uses it."""
        if overlay_name(spec.name) in self.networks(spec.name):
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
        """Take away what `hold_network` has made; returns the names of it."""
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [f"{LABEL_HOLDER}={name}"]})
            for item in found:
                self._remove_container(item["Id"])
        return [str(item["Names"][0]).removeprefix("/") for item in found]

    def remove_bridge(self) -> None:
        """Remove docker_gwbridge, if we made it: Docker leaves it there for ever."""
        with self.errors():
            found = self._api.networks(filters={"label": [LABEL_SWARM]})
            for network in found:
                self._remove_network(network["Id"])

    def remove_overlay(self, name: str) -> bool:
        """Remove a cluster's network by this manager; returns whether it is gone: containers just removed delay it."""
        import docker.errors

        try:
            with self.errors():
                self._remove_network(overlay_name(name))
        except ClusterError as error:
            if not isinstance(error.__cause__, docker.errors.APIError):
                raise
            return False
        return True

    def _make_bridge(self, manager: str) -> None:
        """Make what Docker would make by itself, but labelled: so it can be told from one that was there."""
        self.remove_bridge()  # of an earlier swarm of ours
        with self.errors():
            if any(n["Name"] == BRIDGE for n in self._api.networks(names=[BRIDGE])):
                return
            self._api.create_network(
                BRIDGE,
                driver="bridge",
                options=BRIDGE_OPTIONS,
                labels={LABEL_SWARM: manager},
            )

    def _ready_nodes(self, gone: Collection[str]) -> list[str]:
        with self.errors():
            nodes: Sequence[Mapping[str, Mapping[str, str]]] = self._api.nodes()
        ready = [node for node in nodes if node["Status"]["State"] == "ready"]
        return [str(node["ID"]) for node in ready if node["Status"].get("Addr") not in gone]


def is_for(bridge: Mapping[str, Any], swarm: Mapping[str, Any]) -> bool:
    """Whether we made a docker_gwbridge for this swarm, and not for an earlier one, before others joined another."""
    manager = (bridge.get("Labels") or {}).get(LABEL_SWARM)
    managers = [one.get("Addr") for one in swarm.get("RemoteManagers") or ()]
    is_out = (swarm.get("LocalNodeState") or OUT) == OUT
    return manager is not None and (is_out or manager in managers)


def overlay_name(name: str) -> str:
    """Of a cluster's network: as Compose calls those that it makes."""
    return f"{project_name(name)}_data"


def _free_range(spec: ClusterSpec) -> str:
    """The addresses that Docker may give to whom it likes: beyond those of 99 nodes."""
    return f"10.77.{spec.slot}.128/25"
