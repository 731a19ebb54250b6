"""A cluster whose containers are on another machine: the same words, the same links, the same losses."""

import os
import signal
import time

import pytest
from containers import eventually, losses, paused
from docker_hosts import DockerHost

TRAIN = ("--no-verify", "--strategy", "fedavg", "--set", "H=2", "--steps", "4")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A machine with an engine; images that are sent to it stay for all tests."""
    host = DockerHost("box", tmp_path_factory.mktemp("box"))
    try:
        yield host.start()
    finally:
        host.remove()


@pytest.fixture
def far(make_cluster, host):
    """A cluster there, of three nodes shaped as wan."""
    cluster = make_cluster("far")
    cluster.run("up", "--hosts", host.hosts_file(), "--nodes", "3", "--profile", "wan")
    return cluster


def test_it_is_up_proved_trains_to_the_same_losses_and_leaves_nothing(far, host, shared):
    assert len(host.containers()) == 3 and far.things() == [str(far.state_dir)]  # none of them here
    assert f"on host box: {host.name}" in far.run("status").stdout
    assert far.json("verify", "--quick")["verdict"] != "broken"
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


def test_a_host_that_is_lost_ends_the_run_and_is_named_and_what_is_there_can_be_removed_later(
    far, host
):
    run = far.start("launch", "--no-verify", "--steps", "100000")
    eventually(lambda: "step" in host.exec("docker", "logs", far.container("node1")))
    with paused(host.container):
        _, said = run.communicate(timeout=120)
        assert run.returncode == 1 and "this is a bug" not in said, said
        assert "host box" in said, said
    far.run("down", "--force")
    assert host.containers("--all") == [] and far.things() == []


def test_what_a_killed_up_has_made_there_is_found_and_removed(make_cluster, host):
    cluster = make_cluster("killed")
    up = cluster.start("up", "--hosts", host.hosts_file(), "--nodes", "3")
    eventually(lambda: host.containers("--all"))
    os.kill(up.pid, signal.SIGKILL)
    up.communicate(timeout=60)
    cluster.run("down")
    time.sleep(2)  # compose, where nobody tells it, would have made another one by then
    assert host.containers("--all") == [] and cluster.things() == []


def test_nobody_is_believed_who_shows_another_key_or_none(make_cluster, host):
    cluster = make_cluster("stranger")
    (host.folder / "none").write_text("")
    config = (host.folder / "ssh_config").read_text()
    (host.folder / "unknown").write_text(config.replace("/known_hosts", "/none"))
    done = cluster.run("up", "--hosts", host.hosts_file("a.yml", "unknown"), check=2)
    assert "host box cannot be reached: " in done.stderr and "key" in done.stderr
    assert cluster.things() == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"ssh": "nobody.invalid"}, "host box cannot be reached"),
        ({"docker_socket": "/nothing"}, "host box: no Docker engine answers at /nothing"),
    ],
)
def test_a_host_that_cannot_be_had_is_one_clear_line(make_cluster, host, changes, words):
    cluster = make_cluster("nowhere")
    done = cluster.run("up", "--hosts", host.hosts_file("b.yml", **changes), check=2)
    assert words in done.stderr and len(done.stderr.strip().splitlines()) == 2, done.stderr
    assert cluster.things() == []


def test_a_cluster_stays_where_it_is(far, host):
    other = host.hosts_file("other.yml", ssh="elsewhere")
    done = far.run("up", "--hosts", other, check=2)
    assert "is up on host box" in done.stderr
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
