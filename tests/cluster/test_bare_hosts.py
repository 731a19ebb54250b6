"""A cluster on two hosts without Docker: the same commands, the same links, the same losses."""

import os
import shlex
import signal
import time

import pytest
from containers import PREFIX, PROJECT_DIR, eventually, losses
from docker_hosts import BareMachine, start_machines, write_hosts_file

pytestmark = pytest.mark.slow

TRAIN = ("--no-verify", "--strategy", "fedavg", "--set", "H=2", "--steps", "4")
TRAIN += ("--task-set", "test_pictures=200")
NETWORK = f"{PREFIX}bare"
OURS = {"conmon", "runc", "tini"}
# The classical way out of a chroot; of a root file system that is really a node's own it leads nowhere.
BREAKOUT = (
    'import os; os.makedirs("/tmp/in"); root = os.open("/", os.O_RDONLY); os.chroot("/tmp/in"); '
    'os.fchdir(root); [os.chdir("..") for _ in range(20)]; os.chroot("."); '
    'print("out:", os.path.exists("/var/lib/gradwire/enter"))'
)

# A new user namespace would give all capabilities; a child without one is what programs need.
CALLS = """
import ctypes, errno, platform, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
clone, flags = {"x86_64": 56, "aarch64": 220}[platform.machine()], 0x10000000 | 17
print("unshare", libc.unshare(0x10000000), errno.errorcode[ctypes.get_errno()])
print("clone", libc.syscall(clone, flags, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
except PermissionError:
    print("no vsock")
print("child", subprocess.run(["true"]).returncode)
"""
REFUSED = ["unshare -1 EPERM", "clone -1 EPERM", "no vsock", "child 0"]


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Machines west and east, which can reach each other; images that are sent to them stay for all tests."""
    with start_machines(BareMachine, NETWORK, tmp_path_factory.mktemp) as two:
        yield two


@pytest.fixture
def hosts_file(machines, tmp_path):
    bare = {machine.name: {"engine": "none"} for machine in machines}
    return write_hosts_file(tmp_path, machines, **bare)


def names(cluster, *nodes):
    return [cluster.container(node) for node in nodes]


def test_on_two_hosts_it_is_proved_trains_to_the_same_losses_and_leaves_nothing(
    make_cluster, machines, hosts_file, shared
):
    west, east = machines
    cluster = make_cluster("bare")
    cluster.run("up", "--hosts", hosts_file, "--nodes", "4", "--profile", "wan")
    assert west.nodes() == names(cluster, "node1", "node3")
    assert east.nodes() == names(cluster, "node2", "node4")
    proof = cluster.json("verify", "--quick", check=None)
    assert not proof["broken"], proof
    cluster.run("launch", *TRAIN, "--rank-order", "node1,node2,node3,node4")
    shared.run("up", "--nodes", "4", "--profile", "wan")
    shared.run("launch", *TRAIN)
    assert losses(cluster) == losses(shared) != []
    shared.run("up", "--nodes", "3")
    assert cluster.ssh("node2", "hostname").stdout == "node2\n"
    assert cluster.ssh("node2", "ssh", "node1", "hostname").stdout == "node1\n"
    assert "out: False" in cluster.ssh("node2", "python3", "-c", f"'{BREAKOUT}'").stdout
    called = cluster.ssh("node2", "python3", "-c", shlex.quote(CALLS)).stdout
    assert called.splitlines() == REFUSED
    # A node may configure its own devices; where its tunnel leads to is not one of them.
    assert "veth" in cluster.ssh("node2", "ip", "-details", "link", "show", "data0").stdout
    elsewhere = ("00:00:00:00:00:00", "dev", "data0", "dst", "192.0.2.1")
    cluster.ssh("node2", "bridge", "fdb", "append", *elsewhere)
    assert "dst" not in cluster.ssh("node2", "bridge", "fdb", "show").stdout
    assert "vxlan" not in cluster.ssh("node2", "ip", "-details", "link").stdout
    assert "node3 | node3: sshd is up" in cluster.run("logs", "--tail", "50").stdout
    cluster.run("doctor")
    cluster.run("down")
    for machine in machines:
        assert machine.nodes() == []
        assert not OURS & set(machine.processes())
        assert "gw" not in machine.exec("ls", "/sys/class/net")
    assert cluster.things() == []


def test_up_mends_what_ended_or_is_missing_and_adds_nodes(make_cluster, machines, hosts_file):
    west, east = machines
    cluster = make_cluster("mends")
    cluster.run("up", "--hosts", hosts_file, "--nodes", "2", "--profile", "wan", "--cpus", "1")
    first = cluster.container("node1")
    west.exec("sh", "-c", f"kill -9 $(cat /run/gradwire-host/{first}.pid)")
    east.exec("/var/lib/gradwire/enter", "remove-all", cluster.name, str(PROJECT_DIR))
    eventually(
        lambda: [node["state"] for node in cluster.json("status")["nodes"]] == ["exited", "missing"]
    )
    cluster.run("up", "--nodes", "3")
    found = cluster.json("status")
    assert [node["state"] for node in found["nodes"]] == ["running"] * 3
    assert [node["cpus"] for node in found["nodes"]] == [1.0, None, None]  # node2 was gone with its
    pids = [
        machine.exec("sh", "-c", "cat /run/gradwire-host/gradwire-*.pid") for machine in machines
    ]
    cluster.run("up", "--cpus", "0.5")
    assert [node["cpus"] for node in cluster.json("status")["nodes"]] == [0.5] * 3
    assert pids == [
        machine.exec("sh", "-c", "cat /run/gradwire-host/gradwire-*.pid") for machine in machines
    ]
    assert len(found["links"]) == 6 and not found["warnings"]
    run = cluster.start("launch", "--no-verify", "--steps", "100000")
    eventually(lambda: "step" in cluster.run("logs", "--tail", "20").stdout)
    east.exec("sh", "-c", f"kill -9 $(cat /run/gradwire-host/{cluster.container('node2')}.pid)")
    _, said = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "node2" in said and "its container ended (exit code 137, SIGKILL)" in said, said


def test_what_a_killed_up_has_made_is_found_and_removed(make_cluster, machines, hosts_file):
    cluster = make_cluster("killed")
    up = cluster.start("up", "--hosts", hosts_file, "--nodes", "4")
    eventually(lambda: any(machine.nodes() for machine in machines))
    os.kill(up.pid, signal.SIGKILL)
    up.communicate(timeout=60)
    cluster.run("down")
    time.sleep(1)
    for machine in machines:
        assert machine.nodes() == [] and not OURS & set(machine.processes())
    assert cluster.things() == []


def test_a_host_that_cannot_be_used_is_one_clear_line(make_cluster, machines, tmp_path):
    west, _ = machines
    west.exec(
        "sh",
        "-c",
        "id me || useradd --create-home me && cp -r /root/.ssh /home/me && chown -R me /home/me/.ssh",
    )
    config = west.folder / "as_me"
    config.write_text((west.folder / "ssh_config").read_text().replace("User root", "User me"))
    cluster = make_cluster("nobody")
    done = cluster.run("up", "--hosts", west.hosts_file("me.yml", "as_me", engine="none"), check=2)
    assert "host west: west is not root there" in done.stderr
    done = cluster.run(
        "up", "--hosts", west.hosts_file("gpu.yml", engine="none"), "--gpus", "all", check=2
    )
    assert "its nodes no GPUs" in done.stderr
    assert cluster.things() == []
