"""The Compose document of a cluster, as a pure value, and its file in the state folder.

`docker-compose.yml` in the root is this document for three nodes, written by hand to be read; a test checks that the
two are equal. For any other cluster the document is generated. `docker compose` (v2) and `docker-compose` (v1, 1.29)
both accept it.
"""

import copy
from collections.abc import Collection, Mapping

import yaml

from cluster.base.files import write_text
from cluster.base.spec import IMAGE, ClusterSpec, Node, project_name
from cluster.engine.inspected import HostConfig
from cluster.engine.resources import Limit, service_limits
from protocol.labels import LABEL_CLUSTER
from protocol.places import KEYS_FOLDER, SHARED_FOLDER

LABEL_NODE = "gradwire.node"
LABEL_SIZE = "gradwire.size"
LABEL_SLOT = "gradwire.slot"
LABEL_IMAGE = "gradwire.image"

# All other capabilities are dropped. Each with what needs it:
CAPABILITIES = (
    "NET_ADMIN",  # tc, routes, offloads: the shaping itself
    "NET_RAW",  # ping; iptables' own sockets
    "SYS_NICE",  # the nfqueue wire has priority over the ranks: nice -20, and reserved CPU time
    "SYS_CHROOT",  # sshd: its privilege separation
    "SETUID",  # sshd: to the user who logs in
    "SETGID",  # sshd: likewise
    "CHOWN",  # sshd: the terminal's owner
    "DAC_OVERRIDE",  # sshd and boot: they read keys owned by the host's user
    "KILL",  # to end ranks
    "AUDIT_WRITE",  # sshd: login records
)

SYSCTLS = {
    # Room for the largest bandwidth-delay product of the profiles (100 MB/s x 1 s RTT), twice over.
    "net.ipv4.tcp_rmem": "4096 131072 268435456",
    "net.ipv4.tcp_wmem": "4096 131072 268435456",
    # TCP metrics learnt under one profile must not affect the next.
    "net.ipv4.tcp_no_metrics_save": "1",
    # Nodes are each other's routers and must not advertise shorter routes.
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.send_redirects": "0",
}

# How often the engine checks a node's health, at least so far apart from the next node's: a check starts two processes
# in the container, and 64 at once keep two processors busy for seconds, maybe in the middle of a measurement.
HEALTH_INTERVAL_S, HEALTH_APART_S = 30, 4

SHARED_VOLUME = "shared"
"""The volume that all nodes mount, for files that ranks write together (`launch --shared`)."""

# Set to 0 for a profile without it. Only Compose can set it: /proc/sys is read-only in a container.
SLOW_START_AFTER_IDLE = "net.ipv4.tcp_slow_start_after_idle"

# Host resources that users' code may take. `up --memory` limits memory; if it runs out, a rank is killed first
# (node/rank.py).
LIMITS: dict[str, object] = {
    # Processes and threads: a fork bomb must not exhaust the host's. 64 ranks have some 60 each.
    "pids_limit": 4096,
    # The ranks' output is kept here (`docker logs`) as well as in the run's own logs, so its end is enough.
    "logging": {"driver": "json-file", "options": {"max-size": "20m", "max-file": "2"}},
    # setuid programs must not raise privileges; sshd needs none, because it goes from root to root.
    "security_opt": ["no-new-privileges:true"],
}


def shared_volume(cluster: str) -> str:
    """Return the engine's name of a cluster's SHARED_VOLUME."""
    return f"{project_name(cluster)}_{SHARED_VOLUME}"


def compose_document(
    spec: ClusterSpec,
    limits: Mapping[str, Limit] | None = None,
    *,
    slow_start_after_idle: bool = True,
    mounts_keys: bool = True,
    network: str = "",
) -> dict[str, object]:
    """Return the Compose document of a cluster: plain values, ready for YAML.

    Args:
        spec: the cluster.
        limits: resource limits by node; nodes that are missing have none.
        slow_start_after_idle: whether the nodes' TCP has slow start after idle.
        mounts_keys: whether nodes mount their keys from the state folder, which must be on the engine's machine.
        network: the name of an existing network; empty: the document creates one.
    """
    hosts = [f"{node.name}:{node.address}" for node in spec.nodes]
    sysctls = SYSCTLS | ({} if slow_start_after_idle else {SLOW_START_AFTER_IDLE: "0"})
    return {
        "services": {
            node.name: _service(spec, node, hosts, sysctls)
            | {"volumes": _mounts(spec, node, mounts_keys=mounts_keys)}
            | service_limits((limits or {}).get(node.name, Limit()))
            for node in spec.nodes
        },
        "networks": {"data": {"external": True, "name": network} if network else _network(spec)},
        # No label for the size: compose would want to recreate the volume when the size changes.
        "volumes": {SHARED_VOLUME: {"labels": {LABEL_CLUSTER: spec.name}}},
    }


def write_document(
    spec: ClusterSpec,
    limits: Mapping[str, Limit],
    *,
    slow_start_after_idle: bool,
    mounts_keys: bool,
    network: str = "",
) -> str:
    """Write the cluster's Compose file into its state folder, for people to read; return its text."""
    document = compose_document(
        spec,
        limits,
        slow_start_after_idle=slow_start_after_idle,
        mounts_keys=mounts_keys,
        network=network,
    )
    text = compose_text(document)
    write_text(spec.state_dir / "compose.yml", text)
    return text


def compose_text(document: Mapping[str, object]) -> str:
    """Return a document as YAML for Compose."""
    return yaml.safe_dump(dict(document), sort_keys=False, width=120)


def document_of(text: str, nodes: Collection[str]) -> str:
    """Return a cluster's document reduced to `nodes`: the part that one of several hosts gets."""
    document = yaml.safe_load(text)
    services = {node: it for node, it in document["services"].items() if node in nodes}
    return compose_text(document | {"services": services})


def has_slow_start(host_config: HostConfig) -> bool:
    """Return whether a container was created with slow start after idle, by its host configuration."""
    return (host_config.get("Sysctls") or {}).get(SLOW_START_AFTER_IDLE) != "0"


def _service(
    spec: ClusterSpec, node: Node, hosts: list[str], sysctls: Mapping[str, str]
) -> dict[str, object]:
    return {
        "image": spec.image,
        **({"build": "."} if spec.image == IMAGE else {}),
        "container_name": f"{spec.project}-{node.name}",
        "hostname": node.name,
        "mac_address": node.mac,
        "init": True,
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "sysctls": dict(sysctls),
        **copy.deepcopy(LIMITS),
        "extra_hosts": hosts,
        "ports": [f"{node.ssh_host}:{node.ssh_port}:22"],
        "networks": {"data": {"ipv4_address": node.address}},
        "stop_grace_period": "2s",
        "healthcheck": {
            "test": ["CMD", "bash", "-c", "</dev/tcp/127.0.0.1/22"],
            "interval": f"{_health_interval_s(spec.nodes.index(node))}s",
            "timeout": "5s",
        },
        "labels": network_labels(spec) | {LABEL_NODE: node.name, LABEL_IMAGE: spec.image},
    }


def _health_interval_s(place: int) -> int:
    """Return how often the engine checks the health of the node at this place, counted from 0."""
    return max(HEALTH_INTERVAL_S, HEALTH_APART_S * place)


def _mounts(spec: ClusterSpec, node: Node, *, mounts_keys: bool) -> list[str]:
    keys = [f"./.gradwire/{spec.name}/{node.name}:{KEYS_FOLDER}:ro"] if mounts_keys else []
    return [*keys, f"{SHARED_VOLUME}:{SHARED_FOLDER}"]


def _network(spec: ClusterSpec) -> dict[str, object]:
    return {
        "driver": "bridge",
        "driver_opts": {"com.docker.network.driver.mtu": "1500"},
        "ipam": {"config": [{"subnet": spec.subnet, "gateway": spec.gateway}]},
        "labels": network_labels(spec),
    }


def network_labels(spec: ClusterSpec) -> dict[str, str]:
    """Return the labels by which a cluster's network is found, with the cluster's name, size and slot."""
    return {LABEL_CLUSTER: spec.name, LABEL_SIZE: str(spec.size), LABEL_SLOT: str(spec.slot)}
