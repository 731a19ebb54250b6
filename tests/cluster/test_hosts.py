"""A cluster on one or two other hosts: the same commands, the same links, the same losses."""

import json
import os
import shutil
import signal
import time

import pytest
import yaml
from containers import PREFIX, eventually, last_run, losses
from docker_hosts import DockerHost, OldHost, docker, far_apart, start_machines, write_hosts_file

pytestmark = pytest.mark.slow

TRAIN = ("--no-verify", "--strategy", "fedavg", "--set", "H=2", "--steps", "4")
TRAIN += ("--task-set", "test_pictures=200")
NODES = ("node1", "node2", "node3", "node4")
NETWORK = f"{PREFIX}hosts"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Hosts west and east, which can reach each other; images that are sent to them stay for all tests."""
    with start_machines(DockerHost, NETWORK, tmp_path_factory.mktemp) as two:
        yield two


@pytest.fixture
def host(hosts):
    """One of the hosts, for a cluster on a single host."""
    return hosts[0]


@pytest.fixture
def far(make_cluster, host):
    """A cluster of three nodes on that host, shaped as wan."""
    cluster = make_cluster("far")
    cluster.run("up", "--hosts", host.hosts_file(), "--nodes", "3", "--profile", "wan")
    return cluster


def loop_bytes(cluster):
    """Return what links carried while the last run trained, and that divided by what its collectives need."""
    loop = json.loads((last_run(cluster, "") / "summary.json").read_text())["bytes"]["loop"]
    return loop["carried"], loop["ratio"]


def proof_of(cluster):
    """Return the contract of a quick proof in which no link is broken; on a busy host some may be undecided."""
    proof = json.loads(cluster.run("verify", "--quick", "--json", check=None).stdout)
    assert not proof["broken"], proof
    return proof


def test_it_is_up_proved_trains_to_the_same_losses_and_leaves_nothing(far, host, shared):
    assert len(host.containers()) == 3 and far.things() == [str(far.state_dir)]  # none of them here
    assert f"on host west: {host.name}" in far.run("status").stdout
    proof_of(far)
    far.run("launch", *TRAIN)
    shared.run("up", "--nodes", "3", "--profile", "wan")
    shared.run("launch", *TRAIN)
    assert losses(far) == losses(shared) != []
    assert far.ssh("node2", "hostname").stdout == "node2\n"
    assert "node3 | " in far.run("logs", "--tail", "2").stdout
    far.run("doctor")
    far.run("down")
    assert host.containers("--all") == [] and far.things() == []
    assert "gradwire" not in host.exec("docker", "network", "ls")


def test_up_mends_what_is_missing_there_and_adds_nodes(far, host):
    node2 = far.container("node2")
    host.exec("docker", "rm", "--force", node2)
    host.exec("docker", "restart", "--time", "0", far.container("node1"))
    assert [node["state"] for node in far.json("status")["nodes"]] == [
        "running",
        "missing",
        "running",
    ]
    far.run("up", "--nodes", "4")
    found = far.json("status")
    assert [node["state"] for node in found["nodes"]] == ["running"] * 4
    assert len(found["links"]) == 12 and not found["warnings"]


def test_after_a_reboot_of_its_host_a_launch_has_its_links(far, host, tmp_path):
    script = tmp_path / "short.py"
    script.write_text("print('ran')\n")
    before = far.json("status")["links"]
    host.reboot()
    assert host.containers() == []
    far.run("launch", "--no-verify", "--", script)
    assert far.json("status")["links"] == before
    for node in ("node1", "node2", "node3"):
        assert "htb" in host.exec("docker", "exec", far.container(node), "tc", "qdisc", "show")


def test_a_host_that_is_lost_ends_the_run_and_is_named_and_what_is_there_can_be_removed_later(
    far, host
):
    run = far.start("launch", "--no-verify", "--steps", "100000")
    eventually(lambda: "step" in host.exec("docker", "logs", far.container("node1")))
    with host.cut_off():
        _, said = run.communicate(timeout=120)
        assert run.returncode == 1 and "this is a bug" not in said, said
        assert "host west" in said, said
    far.run("down", "--force")
    assert host.containers("--all") == [] and far.things() == []


def test_what_a_killed_up_has_made_there_is_found_and_removed(make_cluster, host):
    cluster = make_cluster("killed")
    up = cluster.start("up", "--hosts", host.hosts_file(), "--nodes", "3")
    eventually(lambda: host.containers("--all"))
    os.kill(up.pid, signal.SIGKILL)
    up.communicate(timeout=60)
    cluster.run("down")
    time.sleep(2)  # a Compose process left behind would have created another by then
    assert host.containers("--all") == [] and cluster.things() == []


def test_nobody_is_believed_who_shows_another_key_or_none(make_cluster, host):
    cluster = make_cluster("stranger")
    (host.folder / "none").write_text("")
    config = (host.folder / "ssh_config").read_text()
    (host.folder / "unknown").write_text(config.replace("/known_hosts", "/none"))
    done = cluster.run("up", "--hosts", host.hosts_file("a.yml", "unknown"), check=2)
    assert "host west cannot be reached: " in done.stderr and "key" in done.stderr
    assert cluster.things() == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"ssh": "nobody.invalid"}, "host west cannot be reached"),
        ({"docker_socket": "/nothing"}, "host west: no Docker engine answers at /nothing"),
    ],
)
def test_a_host_that_cannot_be_had_is_one_clear_line(make_cluster, host, changes, words):
    cluster = make_cluster("nowhere")
    done = cluster.run("up", "--hosts", host.hosts_file("b.yml", **changes), check=2)
    assert words in done.stderr and len(done.stderr.strip().splitlines()) == 2, done.stderr
    assert cluster.things() == []


def test_a_cluster_stays_where_it_is_and_whose_it_is(far, host, tmp_path):
    other = host.hosts_file("other.yml", ssh="elsewhere")
    done = far.run("up", "--hosts", other, check=2)
    assert "is up on host west" in done.stderr
    shutil.move(far.state_dir, tmp_path / "keys")  # as in the same folder of another machine
    done = far.run("up", "--hosts", host.hosts_file(), check=1)
    assert "on host west, and this checkout has no keys" in done.stderr
    assert len(host.containers()) == 3 and not far.state_dir.exists()
    far.state_dir.parent.mkdir(exist_ok=True)
    shutil.move(tmp_path / "keys", far.state_dir)
    far.run("up")
    assert len(host.containers()) == 3


def test_a_full_disk_there_is_named_and_nothing_stays(make_cluster, tmp_path):
    small = DockerHost("small", tmp_path, images=("--tmpfs", "/var/lib/docker:size=300m"))
    cluster = make_cluster("full")
    try:
        small.start()
        done = cluster.run("up", "--hosts", small.hosts_file(), check=1)
        assert "could not be sent to host small" in done.stderr and "no space left" in done.stderr
        assert "docker system prune" in done.stderr
        assert small.containers("--all") == []
    finally:
        small.remove()
    assert not cluster.state_dir.exists()


@pytest.fixture
def hosts_file(hosts, tmp_path):
    return write_hosts_file(tmp_path, hosts)


def is_empty(host):
    """Return whether the host has nothing of any cluster: containers, volumes, networks, a swarm."""
    found = host.containers("--all"), host.volumes(), host.networks(), host.swarm()
    print(host.name, found)
    return found == ([], [], [], "inactive")


def node_hosts(cluster):
    return [(node["host"], node["state"]) for node in cluster.json("status")["nodes"]]


def test_on_two_hosts_it_is_proved_trains_to_the_same_losses_and_leaves_nothing(
    make_cluster, hosts, hosts_file
):
    far, near = make_cluster("far"), make_cluster("near")
    said = far.run("up", "--hosts", hosts_file, "--nodes", "4", "--profile", "wan").stderr
    assert "packets have 1450 bytes at most" in said and "clocks differ" in said
    assert [len(host.containers()) for host in hosts] == [2, 2]
    assert node_hosts(far) == [("west", "running"), ("east", "running")] * 2
    assert "on host east: east" in far.run("status").stdout
    assert {one["mtu"] for one in proof_of(far)["settings"]} == {1450}
    far.run("launch", *TRAIN)
    config = yaml.safe_load((last_run(far, "") / "run.yml").read_text())
    assert config["node_hosts"] == dict(zip(NODES, ["west", "east"] * 2, strict=True))
    near.run("up", "--nodes", "4", "--profile", "wan")
    near.run("launch", *TRAIN)
    near.run("down")
    assert losses(far) == losses(near) != []
    carried, ratio = loop_bytes(far)
    assert ratio == pytest.approx(1, abs=0.05)
    assert carried == pytest.approx(loop_bytes(near)[0], rel=0.05)
    assert far.ssh("node2", "hostname").stdout == "node2\n"
    assert "GLOO_SOCKET_IFNAME=eth0" in far.ssh("node3", "env").stdout
    assert "node4 | " in far.run("logs", "--tail", "2").stdout
    far.run("doctor")
    refused = far.run("launch", "--no-verify", "--shared", *TRAIN, check=1).stderr
    assert "do not see the folder that node1 has made" in refused and "node4" in refused
    far.run("down")
    assert all(is_empty(host) for host in hosts) and far.things() == []


def test_up_mends_what_is_missing_on_either_and_adds_nodes_where_they_belong(
    make_cluster, hosts, tmp_path
):
    west, east = hosts
    small = write_hosts_file(tmp_path, hosts, west={"nodes": ["node3"]}, east={"nodes": 2})
    cluster = make_cluster("mend")
    refused = cluster.run("up", "--hosts", small, "--nodes", "4", check=2).stderr
    assert "places for 3 of 4 nodes, and none for node4" in refused
    placed = write_hosts_file(tmp_path, hosts, west={"nodes": ["node3"]})
    cluster.run("up", "--hosts", placed, "--nodes", "3")
    assert node_hosts(cluster) == [("east", "running")] * 2 + [("west", "running")]
    west.exec("docker", "rm", "--force", cluster.container("node3"))
    east.exec("docker", "kill", cluster.container("node1"))
    assert [state for _, state in node_hosts(cluster)] == ["exited", "running", "missing"]
    cluster.run("up", "--profile", "mobile")
    found = cluster.json("status")
    assert [node["state"] for node in found["nodes"]] == ["running"] * 3
    assert len(found["links"]) == 6 and not found["warnings"]
    cluster.run("up", "--nodes", "4")  # docker-compose 1.29 recreates all nodes of a host
    there = [("east", "running")] * 2 + [("west", "running"), ("east", "running")]
    assert node_hosts(cluster) == there
    cluster.run("down")
    assert all(is_empty(host) for host in hosts)


def test_the_delay_of_the_network_between_hosts_is_part_of_the_links(
    make_cluster, hosts, hosts_file, tmp_path
):
    """A round trip of the network takes 6 ms, one over the links 24: as on one machine."""
    for name, delay_ms in (("near", 1), ("far", 12)):
        values = f"rate_mbyte_s: 8\ndelay_ms: {delay_ms}\nbuffer_ms: 60\n"
        (tmp_path / f"{name}.yml").write_text(values)
    cluster = make_cluster("apart")
    node1 = ("docker", "exec", cluster.container("node1"))
    too_short = "delay_ms {} is too short: the network between host"
    with far_apart(*hosts, delay_ms=3.0):
        up = ("up", "--hosts", hosts_file, "--nodes", "2", "--profile", tmp_path / "far.yml")
        assert "host west -> east: the network takes " in cluster.run(*up).stderr
        shown = json.loads(hosts[0].exec(*node1, "python3", "-m", "node.wire", "show"))
        assert shown["plan"]["underlay_ms"] == {"node2": pytest.approx(3.0, abs=0.5)}
        proof = proof_of(cluster)
        for link in proof["links"]:
            rtt_ms = link["measured"]["rtt_ms"]
            assert "rtt" in link["undecided"] or rtt_ms == pytest.approx(24, abs=0.6)
        assert any("between hosts, their network takes" in note for note in proof["notes"])
        refused = cluster.run("shape", "--profile", tmp_path / "near.yml", check=2).stderr
        assert too_short.format(1) in refused
        refused = cluster.run("shape", "--link", "node1:node2", "--delay", "2", check=2).stderr
        assert too_short.format(2) in refused
        assert not cluster.json("status")["warnings"]  # and nothing has changed
        cluster.run("down")


def test_a_full_disk_on_one_of_two_hosts_is_named_and_nothing_stays_on_either(
    make_cluster, hosts, tmp_path
):
    """The other host has the image: nothing but the disk is in the way."""
    small = DockerHost("small", tmp_path, ("--tmpfs", "/var/lib/docker:size=300m"), NETWORK)
    cluster = make_cluster("fuller")
    try:
        small.start()
        both = [hosts[0], small]
        file = write_hosts_file(tmp_path, both)
        said = cluster.run("up", "--hosts", file, "--nodes", "4", check=1).stderr
        assert "could not be sent to host small" in said and "no space left" in said, said
        assert all(is_empty(host) for host in both) and not cluster.state_dir.exists()
    finally:
        small.remove()


@pytest.mark.nightly
def test_hosts_with_engines_of_different_versions_are_one_cluster(make_cluster, hosts, tmp_path):
    """Docker 26.1 and 20.10; the older one manages the swarm in the second cluster."""
    old = OldHost("old", tmp_path, network=NETWORK)
    try:
        old.start()
        for both in ([hosts[0], old], [old, hosts[0]]):
            versions = {
                host.exec("docker", "version", "--format", "{{.Server.Version}}") for host in both
            }
            assert len(versions) == 2, versions
            cluster = make_cluster("versions")
            file = write_hosts_file(tmp_path, both)
            cluster.run("up", "--hosts", file, "--nodes", "4", "--profile", "wan")
            proof_of(cluster)
            cluster.run("launch", *TRAIN)
            assert loop_bytes(cluster)[1] == pytest.approx(1.0, abs=0.05)
            cluster.run("down")
            assert all(is_empty(host) for host in both) and cluster.things() == []
    finally:
        old.remove()


@pytest.mark.nightly
def test_what_a_killed_up_has_made_on_two_hosts_is_found_and_removed(
    make_cluster, hosts, hosts_file
):
    cluster = make_cluster("killed")
    up = cluster.start("up", "--hosts", hosts_file, "--nodes", "4")
    eventually(lambda: hosts[1].containers("--all"))  # what keeps the overlay there, or a node
    os.kill(up.pid, signal.SIGKILL)
    up.communicate(timeout=60)
    cluster.run("down")
    time.sleep(2)  # a Compose process left behind would have created another by then
    assert all(is_empty(host) for host in hosts) and cluster.things() == []


@pytest.mark.nightly
def test_clusters_share_a_swarm_that_the_last_one_takes_away(make_cluster, hosts, hosts_file):
    first, second = make_cluster("first"), make_cluster("second")
    first.run("up", "--hosts", hosts_file, "--nodes", "2")
    up = second.start("up", "--hosts", hosts_file, "--nodes", "2")
    first.run("down")  # while the second one comes up
    _, said = up.communicate(timeout=300)
    assert up.returncode == 0, said
    assert [host.swarm() for host in hosts] == ["active", "active"]
    assert second.ssh("node1", "ping", "-c", "1", "node2").returncode == 0
    second.run("down")
    assert all(is_empty(host) for host in hosts)


@pytest.mark.nightly
def test_a_swarm_that_was_there_is_used_and_stays(make_cluster, hosts, hosts_file):
    west, east = hosts
    west.exec("docker", "swarm", "init", "--advertise-addr", west.address)
    cluster = make_cluster("guest")
    try:
        refused = cluster.run("up", "--hosts", hosts_file, "--nodes", "2", check=2).stderr
        assert "host east is not in the swarm of host west, which is not ours" in refused
        token = west.exec("docker", "swarm", "join-token", "--quiet", "worker").strip()
        east.exec("docker", "swarm", "join", "--token", token, f"{west.address}:2377")
        network = (
            f"gradwire-{cluster.name}_data"  # as if an earlier `up` with `encrypted` had left it
        )
        labels = [f"gradwire.cluster={cluster.name}", "gradwire.slot=0"]
        options = [word for label in labels for word in ("--label", label)]
        options += ["--driver", "overlay", "--opt", "encrypted"]
        west.exec("docker", "network", "create", *options, network)
        refused = cluster.run("up", "--hosts", hosts_file, "--nodes", "2", check=1).stderr
        assert f"this checkout has not made network {network}" in refused
        cluster.run("up", "--hosts", hosts_file, "--nodes", "2", "--force")
        cluster.run("up")
        assert "encrypted" not in west.exec("docker", "network", "inspect", network)
        cluster.run("down")
        assert [host.swarm() for host in hosts] == ["active", "active"]
        assert west.networks() == ["docker_gwbridge", "ingress"]
    finally:
        for host in hosts:
            host.exec("docker", "swarm", "leave", "--force")
            host.exec("docker", "network", "rm", "docker_gwbridge")


def end_of(process):
    """Return what a verb says that loses a host."""
    _, said = process.communicate(timeout=300)
    assert process.returncode != 0 and "host east" in said and "this is a bug" not in said, said
    return said


def test_a_host_that_falls_silent_in_any_phase_is_named_and_the_next_up_heals(
    make_cluster, hosts, hosts_file
):
    west, east = hosts
    cluster = make_cluster("silent")
    up = cluster.start("up", "--hosts", hosts_file, "--nodes", "4")
    eventually(lambda: cluster.container("node2") in east.containers())
    with east.cut_off():
        end_of(up)
        assert west.containers("--all") == []
    cluster.run("up", "--hosts", hosts_file, "--nodes", "4", "--profile", "wan")
    assert node_hosts(cluster) == [("west", "running"), ("east", "running")] * 2
    verify = cluster.start("verify")
    eventually(lambda: "node.probe" in west.exec("ps", "ax"))
    with east.cut_off():
        said = end_of(verify)
    assert "node2" in said and "node4" in said, said
    east.exec("pkill", "-STOP", "dockerd")
    down = cluster.start("down")
    eventually(lambda: west.containers("--all") == [])
    with east.cut_off():
        end_of(down)
    east.exec("pkill", "-CONT", "dockerd")
    cluster.run("down")
    assert all(is_empty(host) for host in hosts)


def test_a_host_that_is_lost_is_named_with_its_nodes_and_the_other_one_can_be_cleaned(
    make_cluster, hosts, hosts_file, tmp_path
):
    """This must be the last test of the file: the host does not come back."""
    west, east = hosts
    cluster = make_cluster("lost")
    cluster.run("up", "--hosts", hosts_file, "--nodes", "4")
    run = cluster.start("launch", "--no-verify", "--steps", "100000")
    eventually(lambda: "step" in west.exec("docker", "logs", cluster.container("node1")))
    docker("kill", east.container)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 1 and "this is a bug" not in said, said
    assert "host east does not answer any more" in said and "node2" in said, said
    for verb in ("status", "down"):
        refused = cluster.run(verb, check=2).stderr
        assert "host east cannot be reached" in refused and "(it has node2, node4)" in refused
        assert "cluster.down" in refused and "--force" in refused
    told = cluster.run("down", "--force").stderr
    assert "host east does not answer: node2, node4" in told and f"ssh -F {tmp_path}" in told
    assert "docker volume rm gradwire-swarm && docker swarm leave" in told
    assert is_empty(west) and cluster.things() == []
