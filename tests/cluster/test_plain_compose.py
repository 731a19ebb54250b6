"""A plain `compose up` works too: its nodes run, say that they have no keys, and `up` takes them over."""

import subprocess

import yaml
from containers import PROJECT_DIR, eventually, output

from cluster.compose import compose_document
from cluster.compose_process import compose_command
from cluster.spec import ClusterSpec


def test_a_plain_compose_up_is_taken_over_by_cluster_up(make_cluster, tmp_path):
    cluster = make_cluster("plain")
    document = tmp_path / "compose.yml"  # what docker-compose.yml is for the default cluster
    document.write_text(yaml.safe_dump(compose_document(ClusterSpec(cluster.name, 2, 30))))
    plain = ["--project-name", cluster.name, "--project-directory", str(PROJECT_DIR)]
    argv = [*compose_command(), *plain, "--file", str(document)]
    subprocess.run([*argv, "up", "--detach"], check=True, capture_output=True)
    eventually(
        lambda: "nobody can log in yet" in output(["docker", "logs", f"{cluster.name}-node2"])
    )
    assert "node1" in cluster.exec("node2", "getent", "hosts", "node1")
    status = cluster.json("up")
    assert [node["ssh_port"] for node in status["nodes"]] == [25001, 25002]
    assert cluster.ssh("node2", "hostname").stdout == "node2\n"


def test_the_committed_file_is_valid_for_compose():
    subprocess.run(
        [*compose_command(), "--file", "docker-compose.yml", "config", "--quiet"],
        cwd=PROJECT_DIR,
        check=True,
        capture_output=True,
    )
    overlay = ["--file", "docker-compose.yml", "--file", "compose/gpu.yml"]
    subprocess.run(
        [*compose_command(), *overlay, "config", "--quiet"],
        cwd=PROJECT_DIR,
        check=True,
        capture_output=True,
    )
