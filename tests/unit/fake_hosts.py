"""Fake hosts: two of them, west and east, with the nodes of one cluster and the swarm that they are in."""

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine.container import Container
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.swarm_lock import swarm_lock
from cluster.hosts.swarm_plan import IN, Member, Overlay, overlay_name

SPEC = ClusterSpec("lab", 4)
HOSTS = Hosts(
    (Host("west", "west", internal_ip="10.1.0.1"), Host("east", "east", internal_ip="10.1.0.2"))
)
NETWORK = overlay_name("lab")


class FakeTunnel:
    """A tunnel that only names its host."""

    def __init__(self, host):
        self.host = host

    def dial(self, node, timeout_s):
        return f"{node.name} by {self.host}"


class FakeHost:
    """The engine of one host, with the cluster's nodes that are placed on it."""

    def __init__(self, name, nodes):
        self.host_name, self.tunnel, self.nodes = name, FakeTunnel(name), nodes
        self.where, self.start_it, self.kind = f"host {name}", "docker info", "Docker"
        self.host = next(host for host in HOSTS.hosts if host.name == name)
        self.done, self.failure, self.failures = [], None, 0
        self.has_network, self.has_volume = True, True
        self.is_ours, self.answers = True, True
        self.found = Overlay(0, False)
        self.is_encrypted, self.is_busy, self.has_mark = None, False, False

    def containers(self, cluster=None):
        if self.failure:
            raise self.failure
        return [container(node, self.host_name) for node in self.nodes]

    def image_id(self, tag):
        return f"of {self.host_name}"

    def slots(self, *, beside):
        return {len(self.host_name), 9} if self.host_name == "west" else {7}

    def slot_of_network(self, name):
        return 3 if self.host_name == "east" else None

    def networks(self, name):
        return [NETWORK] if self.has_network else []

    def log_tail(self, container_id, lines):
        return f"{container_id} on {self.host_name}"

    def inspect(self, container_id):
        return None

    def set_limits(self, containers, limits):
        self.done.append([one.node for one in containers])

    def remove_containers(self, containers):
        self.done.append([one.node for one in containers])
        self.nodes = []

    def proxy_commands(self, spec):
        return dict.fromkeys((node.name for node in spec.nodes), f"ssh -W %h:%p {self.host_name}")

    def room(self):
        return (8, 2**33) if self.host_name == "west" else (2, 2**32)

    def labelled_volumes(self, name):
        return ["gradwire-lab_shared"] if self.has_volume else []

    def remove_volumes(self, name):
        found, self.has_volume = self.labelled_volumes(name), False
        return found

    def release_network(self, name):
        return []

    def member(self, gone=()):
        if self.failure:
            self.failures -= 1
            failure, self.failure = self.failure, self.failure if self.failures else None
            raise failure
        is_manager = self.host_name == "west" and "left" not in self.done
        addresses = {host.name: host.internal_ip for host in HOSTS.hosts}
        ready = frozenset(
            host
            for host in ("west", "east")
            if host == "west" or (self.answers and addresses[host] not in gone)
        )
        self.answers = True
        overlays = (NETWORK,) if self.has_network else ()
        state = IN if "left" not in self.done else "inactive"
        ours = {"is_manager": True, "is_ours": self.is_ours, "ready": ready} if is_manager else {}
        mark = {"has_our_mark": self.has_mark}
        return Member(self.host_name, state, self.host_name, overlays=overlays, **ours, **mark)

    def remove_overlay(self, name):
        self.has_network = self.is_busy
        return not self.is_busy

    def overlay(self, name):
        return self.found if self.has_network else None

    def make_overlay(self, spec, *, encrypted):
        self.is_encrypted = encrypted

    def hold_network(self, spec):
        self.done.append(f"holds, locked: {is_locked()}")

    def leave_swarm(self):
        self.done.append("left")

    def make_swarm(self):
        self.done.append("made a swarm")

    def worker_token(self):
        return "token", self.host.internal_ip

    def join_swarm(self, token, address):
        self.done.append(f"joined {address}")

    def remove_traces(self):
        self.has_mark = False

    def forget_nodes(self, ids):
        self.done.append(f"forgot {ids}")


def is_locked():
    """Return whether a command holds the swarm lock."""
    try:
        with swarm_lock(0.0):
            return False
    except ClusterError:
        return True


def container(node, host):
    name = f"gradwire-lab-{node}"
    return Container(
        f"id of {node}",
        "lab",
        node,
        4,
        0,
        *("running", "", "custom", f"of {host}", ""),
        name,
        is_connected=True,
        host=host,
    )
