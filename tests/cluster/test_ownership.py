"""Foreign things are left alone: Compose projects, clusters of other checkouts, containers with copied labels."""

import os
import shutil
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S, output

from cluster.base.spec import project_name
from cluster.engine.client import Engine
from cluster.engine.compose_up import compose_command

COMPOSE_FILE = 'services: {db: {image: gradwire-node, command: ["sleep", "600"], init: true}}\n'


@pytest.fixture
def stranger(tmp_path, shared):  # shared: builds the image gradwire-node
    """Start a foreign Compose project of the given name; returns its container."""
    (tmp_path / "compose.yml").write_text(COMPOSE_FILE)
    begun = []

    def start(project):
        file = str(tmp_path / "compose.yml")
        argv = [*compose_command(), "--project-name", project, "--file", file]
        subprocess.run([*argv, "up", "--detach"], check=True, capture_output=True)
        begun.append(argv)
        return output([*argv, "ps", "--quiet"]).strip()

    yield start
    for argv in begun:
        subprocess.run([*argv, "down", "--timeout", "0"], capture_output=True)


@pytest.fixture
def other_checkout(tmp_path_factory):
    """Run a verb in a second checkout of the project."""
    copy = tmp_path_factory.mktemp("other") / "gradwire"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".gradwire", "runs", "__pycache__", ".*_cache"
    )
    shutil.copytree(PROJECT_DIR, copy, ignore=ignored)

    def run(verb, *words):
        argv = [sys.executable, "-m", f"cluster.{verb}", *words]
        return subprocess.run(
            argv,
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    return run


def is_running(container):
    return output(["docker", "inspect", "-f", "{{.State.Running}}", container]) == "true\n"


def test_a_strangers_compose_project_of_the_same_name_is_left_alone(stranger, make_cluster):
    cluster = make_cluster("namesake")
    container = stranger(cluster.name)
    cluster.run("up", "--nodes", "1")
    assert is_running(container)
    cluster.run("down")
    assert is_running(container)


def test_a_strangers_project_that_even_has_our_prefix_is_refused(stranger, make_cluster):
    cluster = make_cluster("prefixed")
    container = stranger(project_name(cluster.name))
    done = cluster.run("up", "--nodes", "1", check=1)
    assert "no nodes of ours" in done.stderr and "--name" in done.stderr
    assert is_running(container)
    assert cluster.things() == []


def test_surplus_nodes_are_removed_by_our_own_labels(stranger, make_cluster):
    cluster = make_cluster("shrink")
    cluster.run("up", "--nodes", "2")
    cluster.run("up", "--nodes", "1")
    assert [c.node for c in Engine().containers(cluster.name)] == ["node1"]


def test_another_checkout_removes_a_cluster_only_when_it_is_forced(make_cluster, other_checkout):
    cluster = make_cluster("theirs")
    cluster.run("up", "--nodes", "1")
    for words in (("--name", cluster.name), ("--all",)):
        done = other_checkout("down", *words)
        assert cluster.ssh("node1", "hostname").stdout == "node1\n", done.stderr
    done = other_checkout("down", "--name", cluster.name)
    assert done.returncode == 1
    assert str(PROJECT_DIR) in done.stderr and "--force" in done.stderr
    done = other_checkout("status", "--name", cluster.name)
    assert done.returncode == 1 and str(PROJECT_DIR) in done.stderr
    done = other_checkout("down", "--force", "--name", cluster.name)
    assert done.returncode == 0, done.stderr
    assert Engine().containers(cluster.name) == []
    cluster.run("down")  # removes its keys
    assert cluster.things() == []


def test_a_container_that_has_only_inherited_our_labels_is_nobodys_node(make_cluster):
    """`docker commit` of a node creates images with its labels."""
    cluster = make_cluster("labels")
    cluster.run("up", "--nodes", "1")
    image, name = f"{cluster.name}-committed", f"{cluster.name}-mine"
    subprocess.run(
        ["docker", "commit", cluster.container("node1"), image], check=True, capture_output=True
    )
    wrong = ["--label", "gradwire.size=", "--label", "gradwire.slot=x"]
    argv = ["docker", "run", "--detach", "--init", "--entrypoint", "sleep"]
    try:
        subprocess.run([*argv, "--name", name, image, "600"], check=True, capture_output=True)
        subprocess.run(
            [*argv, "--name", f"{name}2", *wrong, image, "600"], check=True, capture_output=True
        )
        assert [node["name"] for node in cluster.json("status")["nodes"]] == ["node1"]
        cluster.run("down")
        assert is_running(name) and is_running(f"{name}2")
    finally:
        made = [name, f"{name}2"]  # their image declares the node's volumes
        subprocess.run(["docker", "rm", "--force", "--volumes", *made], capture_output=True)
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True)
