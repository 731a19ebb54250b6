"""A cluster on two hosts whose kernels, and so clocks and boot ids, differ: user-mode Linux runs one, 30 s ahead."""

import platform
import time

import pytest
from containers import PREFIX, last_run
from docker_hosts import BareMachine, start_machines, write_hosts_file
from kernel_machine import KernelMachine

from cluster.accounting.clocks import read_clocks
from cluster.accounting.metrics import last_lines

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="user-mode Linux is for x86_64"),
]

AHEAD_S = 30
NETWORK = f"{PREFIX}kernels"
UP_TIMEOUT_S = 1800  # 1.3 GB of image, unpacked by the slow processor of the guest
OURS = {"conmon", "runc", "tini"}
# Links that user-mode Linux carries on a slow and busy machine. nfqueue: this machine's kernel may have no netem.
PROFILE = "rate_mbyte_s: 1\ndelay_ms: 40\n"
UP = ("--nodes", "2", "--wire", "nfqueue", "--profile")
TRAIN = ("--no-verify", "--strategy", "fedavg", "--set", "H=2", "--steps", "4")
TRAIN += ("--task-set", "test_pictures=200")


def make_machine(name, folder, network):
    """Return west, which has this machine's kernel, or east, which has its own."""
    kind = KernelMachine if name == "east" else BareMachine
    return kind(name, folder, network)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Machines west and east, which can reach each other; east's clock is ahead."""
    with start_machines(make_machine, NETWORK, tmp_path_factory.mktemp) as two:
        west, east = two
        # user-mode Linux drops super-packets in a tunnel, which this machine would leave whole.
        west.exec("ip", "link", "set", "dev", "eth0", "gso_max_segs", "1")
        east.set_clock_ahead(AHEAD_S)
        yield two


@pytest.fixture
def hosts_file(machines, tmp_path):
    bare = {machine.name: {"engine": "none"} for machine in machines}
    return write_hosts_file(tmp_path, machines, **bare)


def ahead_between(machine):
    """Return the least and the most seconds that a machine's clock is ahead of this one's, as we ask it ourselves."""
    before = time.time()
    said = float(machine.exec("date", "+%s.%N"))
    return said - time.time(), said - before


def test_the_hosts_have_a_kernel_and_a_clock_each(machines):
    west, east = machines
    boots = [machine.exec("cat", "/proc/sys/kernel/random/boot_id") for machine in machines]
    assert boots[0] != boots[1]
    least, most = ahead_between(east)
    assert AHEAD_S - 1 < least <= most < AHEAD_S + 5
    least, most = ahead_between(west)
    assert least <= 0 <= most


def test_links_are_judged_by_round_trips_and_times_are_corrected(
    make_cluster, machines, hosts_file, tmp_path
):
    (tmp_path / "slow.yml").write_text(PROFILE)
    cluster = make_cluster("kernels")
    words = ("--hosts", hosts_file, *UP, tmp_path / "slow.yml")
    cluster.run("up", *words, timeout_s=UP_TIMEOUT_S)
    proof = cluster.json("verify", check=None)
    assert not proof["broken"], proof
    (note,) = [note for note in proof["notes"] if "clock" in note]
    assert note.startswith("2 links are between hosts, without a common clock")
    measured = [link["measured"] for link in proof["links"]]
    assert [one["delay_ms"] for one in measured] == [None, None]
    assert all(one["rtt_ms"] for one in measured)
    cluster.run("launch", *TRAIN)
    folder = last_run(cluster, "")
    west, east = (read_clocks(folder)[node] for node in ("node1", "node2"))
    least, most = ahead_between(machines[1])
    assert east.ahead_s + east.error_s >= least and east.ahead_s - east.error_s <= most
    assert abs(west.ahead_s) <= west.error_s
    starts = [
        last_lines(folder / "metrics" / f"{node}.jsonl").start.time for node in ("node1", "node2")
    ]
    assert abs(starts[1] - starts[0]) < AHEAD_S / 2
    cluster.run("down")
    for machine in machines:
        assert machine.nodes() == []
        assert not OURS & set(machine.processes())
    assert cluster.things() == []
