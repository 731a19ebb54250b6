"""The command with which a user removes what a cluster left on a host that did not answer."""

import os
import shlex
import subprocess

import pytest

from cluster.base.paths import PROJECT_DIR
from cluster.hosts import clean_up
from cluster.hosts.clean_up import clean_up_command, ssh_command
from cluster.hosts.hosts_file import Host

EAST = Host("east", "me@east", internal_ip="10.1.0.2")
NETWORK = "gradwire-lab_data"
STUB = """#!/bin/sh
echo "$*" >> "$LOG"
case "$*" in
  *"ps -aq"*) echo c1 ;;
  *"network ls"*) for name in $NETWORKS; do echo "$name"; done ;;
  *"volume rm gradwire-swarm"*) exit "$UNMARKED" ;;
esac
"""


def on_host(command):
    """Return the command that the host's shell gets."""
    return shlex.split(command)[-1]


def played(command, tmp_path, networks=("ingress",), unmarked=0):
    """Return the docker calls that the command makes on a host with these networks."""
    (tmp_path / "docker").write_text(STUB)
    (tmp_path / "docker").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "LOG": str(tmp_path / "log"), "NETWORKS": " ".join(networks)}
    env |= {"UNMARKED": str(unmarked)}
    subprocess.run(["sh", "-c", on_host(command)], env=env, timeout=10, capture_output=True)
    return (tmp_path / "log").read_text().splitlines()


def test_a_swarm_that_is_not_ours_is_left_as_it_is(tmp_path):
    command = clean_up_command(EAST, "lab", manages=False, leaves_swarm=False)
    assert "swarm" not in command
    calls = played(command, tmp_path)
    assert calls[1:] == ["rm -fv c1", "volume rm gradwire-lab_shared"]


def test_only_containers_of_this_checkouts_cluster_are_selected(tmp_path, monkeypatch):
    """Another checkout may have a cluster of the same name there by then."""
    project = "com.docker.compose.project"
    listing, *_ = played(clean_up_command(EAST, "lab", manages=False, leaves_swarm=False), tmp_path)
    filters = ["gradwire.cluster=lab", f"{project}=gradwire-lab"]
    filters += [f"{project}.working_dir={PROJECT_DIR}"]
    assert listing == " ".join(["ps -aq", *(f"--filter label={one}" for one in filters)])
    monkeypatch.setattr(clean_up, "PROJECT_DIR", "/home/me/a b")
    command = on_host(clean_up_command(EAST, "lab", manages=False, leaves_swarm=False))
    assert f"'label={project}.working_dir=/home/me/a b'" in command


def test_a_host_that_may_be_the_manager_removes_the_network_too(tmp_path):
    command = clean_up_command(EAST, "lab", manages=True, leaves_swarm=False)
    assert played(command, tmp_path)[-1] == f"network rm {NETWORK}"


@pytest.mark.parametrize(
    ("networks", "unmarked", "leaves"),
    [
        (("ingress", NETWORK), 0, True),
        ((), 0, True),
        # Of another cluster, or the user's own.
        (("ingress", "gradwire-other_data"), 0, False),
        # The command ran before, and the host has joined another swarm since.
        (("ingress",), 1, False),
    ],
)
def test_ours_is_left_only_where_nothing_needs_it(tmp_path, networks, unmarked, leaves):
    command = clean_up_command(EAST, "lab", manages=False, leaves_swarm=True)
    calls = played(command, tmp_path, networks, unmarked)
    assert ("swarm leave --force" in calls) == leaves


def test_the_command_goes_the_way_that_we_go():
    host = Host("east", "east", "me@gate", "docker", "/run/user/1000/docker.sock", "/a b/config")
    command = clean_up_command(host, "lab", manages=False, leaves_swarm=True)
    assert shlex.split(command)[:-1] == [*("ssh", "-F", "/a b/config", "-J", "me@gate"), "east"]
    assert on_host(command).count("docker --host unix:///run/user/1000/docker.sock ") == 6
    assert ssh_command(EAST, "docker info") == "ssh me@east 'docker info'"


def test_a_socket_with_odd_letters_stays_one_word():
    host = Host("east", "east", docker_socket="/a$(b)/docker.sock")
    remote = on_host(clean_up_command(host, "lab", manages=False, leaves_swarm=False))
    assert "--host 'unix:///a$(b)/docker.sock' rm" in remote
