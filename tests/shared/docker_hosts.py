"""Other machines for the tests: containers that have a Docker engine and an sshd of their own.

They have some privileges, but not all: what a test does there does not affect this machine.
"""

import json
import subprocess
from contextlib import contextmanager

from containers import PREFIX, PROJECT_DIR, TIMEOUT_S, eventually

from cluster.base.spec import IMAGE as NODE_IMAGE
from cluster.base.spec import Node
from cluster.engine.client import Engine
from cluster.engine.image import BASE_IMAGE, ensure_base
from cluster.links.link_spec import LinkSpec, link_plans
from cluster.links.profiles import Profile
from cluster.links.topology import Topology
from cluster.shaping.link_state import encode

IMAGE = "gradwire-test-host"
DOCKERFILE = PROJECT_DIR / "tests" / "cluster" / "host.Dockerfile"
CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "MKNOD", "SYS_MODULE", "SYS_NICE")
WIRE_CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_NICE")
UNCONFINED = ("seccomp", "apparmor", "systempaths")


class DockerHost:
    """A machine that the ssh client knows by name, from a configuration of its own.

    Args:
        name: the machine's name.
        folder: the folder for its keys and files.
        images: where its engine stores images: an option of `docker run`.
        network: the network of this machine's Docker on which it reaches other hosts; None: Docker's default.
    """

    command: tuple[str, ...] = ()
    """What it runs instead of an sshd and an engine."""
    release = "trixie"
    """The release of Debian that its engine is from."""

    def __init__(self, name, folder, images=("--volume", "/var/lib/docker"), network=None):
        self.name, self.folder, self._images, self._network = name, folder, images, network
        self.container = f"{PREFIX}{name}"

    def start(self):
        """Create it, and wait until ssh works and its engine answers."""
        self.remove()
        self._build_image()
        self._run_container()
        self._write_keys()
        eventually(self._is_ready)
        return self

    @property
    def address(self):
        """The address at which this machine and other hosts reach it."""
        return self._endpoint["IPAddress"]

    @property
    def mac(self):
        """Its MAC address on that network."""
        return self._endpoint["MacAddress"]

    @property
    def _endpoint(self):
        (found,) = json.loads(docker("inspect", self.container))
        (network,) = found["NetworkSettings"]["Networks"].values()
        return network

    def exec(self, *argv):
        """Run a command on it without the tool."""
        return docker("exec", self.container, *argv)

    def containers(self, *options):
        """Return the names of its engine's containers."""
        return self.exec("docker", "ps", "--format", "{{.Names}}", *options).split()

    def networks(self):
        """Return the names of its engine's networks, without Docker's own three."""
        found = self.exec("docker", "network", "ls", "--format", "{{.Name}}").split()
        return sorted(set(found) - {"bridge", "host", "none"})

    def volumes(self):
        """Return the names of its engine's volumes."""
        return self.exec("docker", "volume", "ls", "--quiet").split()

    def swarm(self):
        """Return its swarm state: inactive, active."""
        return self.exec("docker", "info", "--format", "{{.Swarm.LocalNodeState}}").strip()

    def ssh(self, *argv):
        """Run the ssh client with this machine's configuration."""
        options = ("-F", str(self.folder / "ssh_config"), "-o", "BatchMode=yes")
        argv = ["ssh", *options, self.name, *argv]
        return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)

    def hosts_file(self, name="hosts.yml", ssh_config="ssh_config", **changes):
        """Write a hosts file that names it."""
        path = self.folder / name
        hosts = [{"name": self.name, "ssh": self.name} | changes]
        path.write_text(json.dumps({"hosts": hosts, "ssh_config": ssh_config}))
        return path

    @contextmanager
    def cut_off(self):
        """Drop all packets to and from it during the block; its processes go on."""
        self.exec("ip", "link", "set", "dev", "eth0", "down")
        try:
            yield
        finally:
            self.exec("ip", "link", "set", "dev", "eth0", "up")

    def reboot(self):
        """End its engine and everything else on it, start it again, and wait until ssh works and its engine answers."""
        docker("restart", self.container)
        eventually(self._is_ready)

    def remove(self):
        """Remove it, and everything on it."""
        docker("rm", "--force", "--volumes", self.container)

    @property
    def _image(self):
        return f"{IMAGE}:{self.release}"

    def _is_ready(self):
        return self.ssh("docker", "info").returncode == 0

    def _build_image(self):
        ensure_base(Engine(), print)
        own = [f"BASE={BASE_IMAGE}", f"RELEASE={self.release}"]
        words = [word for one in own for word in ("--build-arg", one)]
        docker("build", "--quiet", "--tag", self._image, *words, "-", stdin=DOCKERFILE.read_text())

    def _run_container(self):
        words = [*("--detach", "--name", self.container, "--hostname", self.name), *self._images]
        words += ["--network", self._network] if self._network else []
        words += ["--volume", "/sys/fs/cgroup:/sys/fs/cgroup", "--device-cgroup-rule", "a *:* rwm"]
        words += [word for one in CAPABILITIES for word in ("--cap-add", one)]
        words += [word for one in UNCONFINED for word in ("--security-opt", f"{one}=unconfined")]
        docker("run", *words, self._image, *self.command)

    def _write_keys(self):
        key, known = self.folder / "key", self.folder / "known_hosts"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        docker(
            "exec",
            "--interactive",
            self.container,
            *("tee", "/root/.ssh/authorized_keys"),
            stdin=key.with_suffix(".pub").read_text(),
        )
        address = self.address
        public = docker("exec", self.container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        known.write_text(f"{address} {public}")
        self.write_ssh_config("ssh_config", address, key, known)

    def write_ssh_config(self, name, address, key, known):
        """Write an ssh configuration that knows the machine."""
        lines = [f"Host {self.name}", f"  HostName {address}", "  User root"]
        lines += [f"  IdentityFile {key}", "  IdentitiesOnly yes", f"  UserKnownHostsFile {known}"]
        (self.folder / name).write_text("\n".join([*lines, ""]))


class OldHost(DockerHost):
    """A machine with an older engine (Docker 20.10), beside a host with that of `release`."""

    release = "bookworm"


class BareMachine(DockerHost):
    """A machine without an engine: only its sshd runs."""

    command = ("/usr/sbin/sshd", "-D")

    def __init__(self, name, folder, network):
        super().__init__(name, folder, ("--volume", "/var/lib/gradwire"), network)

    def nodes(self):
        """Return the names of the nodes that it has, running or not."""
        # Before the first image comes there is no such folder.
        return self.exec("sh", "-c", "ls /var/lib/gradwire/nodes 2>/dev/null || true").split()

    def processes(self):
        """Return the names of what runs on it."""
        return sorted(self.exec("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null").split())

    def _is_ready(self):
        return self.ssh("true").returncode == 0


@contextmanager
def start_machines(kind, network, make_folder, names=("west", "east")):
    """Yield machines that can reach each other; images that are sent to them stay meanwhile."""
    docker("network", "create", network)
    all_of_them = [kind(name, make_folder(name), network=network) for name in names]
    try:
        yield [machine.start() for machine in all_of_them]
    finally:
        for machine in all_of_them:
            machine.remove()
        docker("network", "rm", network)


@contextmanager
def far_apart(one, other, delay_ms):
    """Delay what two hosts on one network send to each other during the block, by a wire of ours beneath theirs."""
    with delayed_from(other, one, delay_ms), delayed_from(one, other, delay_ms):
        yield


@contextmanager
def delayed_from(other, host, delay_ms):
    """Run a wire in a host's network namespace, which delays what comes from the other host."""
    wire = f"{host.container}-wire"
    docker("rm", "--force", wire)
    words = ["--detach", "--init", "--name", wire, "--network", f"container:{host.container}"]
    words += [word for one in WIRE_CAPABILITIES for word in ("--cap-add", one)]
    docker("run", *words, "--cap-drop", "ALL", "--entrypoint", "sleep", NODE_IMAGE, "infinity")
    plan = encode(plan_between(host, other, delay_ms)).decode()
    apply = ("exec", "--interactive", wire, "python3", "-m", "node.wire")
    try:
        docker(*apply, "apply", stdin=plan)
        yield
    finally:
        docker(*apply, "clear")
        docker("rm", "--force", wire)


def plan_between(host, other, delay_ms):
    """Return the plan of a host's links to and from another one: fast, with this delay each way."""
    nodes = [
        Node(one.name, rank, one.address, one.mac, "", 0) for rank, one in enumerate((host, other))
    ]
    profile = Profile("apart", (500.0, 500.0), (delay_ms, delay_ms), buffer_ms=(50.0, 50.0))
    return link_plans(nodes, LinkSpec(profile, Topology("full", "full")))[host.name]


def write_hosts_file(folder, hosts, **own):
    """Write a hosts file that names several, each with settings of its own: west={"nodes": 2}."""
    configs = [(host.folder / "ssh_config").read_text() for host in hosts]
    (folder / "ssh_config").write_text("".join(configs))
    listed = [
        {"name": host.name, "ssh": host.name, "internal_ip": host.address} | own.get(host.name, {})
        for host in hosts
    ]
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"hosts": listed, "ssh_config": "ssh_config"}))
    return path


def docker(*argv, stdin=None):
    """Run a `docker` command with this machine's engine; return its output."""
    return run("docker", *argv, stdin=stdin)


def run(*argv, stdin=None):
    words = [str(word) for word in argv]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
