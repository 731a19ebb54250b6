"""Nodes of a plain `compose up` run and say that they have no keys; `cluster.up` takes them over."""

import shutil
import subprocess

import pytest
import yaml
from containers import OWN_SLOT, PROJECT_DIR, eventually, output

from cluster.base.spec import ClusterSpec, project_name
from cluster.engine.compose import compose_document
from cluster.engine.compose_up import compose_command
from cluster.engine.resources import Limit


def test_a_plain_compose_up_is_taken_over_by_cluster_up(make_cluster, tmp_path):
    cluster = make_cluster("plain")
    document = tmp_path / "compose.yml"  # corresponds to docker-compose.yml of the default cluster
    document.write_text(yaml.safe_dump(compose_document(ClusterSpec(cluster.name, 2, OWN_SLOT))))
    plain = ["--project-name", project_name(cluster.name), "--project-directory", str(PROJECT_DIR)]
    argv = [*compose_command(), *plain, "--file", str(document)]
    subprocess.run([*argv, "up", "--detach"], check=True, capture_output=True)
    eventually(
        lambda: "nobody can log in yet" in output(["docker", "logs", cluster.container("node2")])
    )
    assert "node1" in cluster.exec("node2", "getent", "hosts", "node1")
    status = cluster.json("up")
    assert [node["ssh_port"] for node in status["nodes"]] == [
        22001 + 100 * OWN_SLOT,
        22002 + 100 * OWN_SLOT,
    ]
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


@pytest.mark.parametrize("gpus", ["all", "0,1"])
def test_compose_takes_gpus_as_we_write_them(gpus, tmp_path):
    document = tmp_path / "compose.yml"
    limits = {"node1": Limit(gpus=gpus)}
    document.write_text(yaml.safe_dump(compose_document(ClusterSpec("gpus", 2), limits)))
    services = yaml.safe_load(output([*compose_command(), "--file", str(document), "config"]))[
        "services"
    ]
    (device,) = services["node1"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    # Both versions of Compose keep the numbers; v2 writes `all` as -1.
    assert device.get("device_ids") == (["0", "1"] if gpus == "0,1" else None)
    assert device.get("count") in ((None,) if gpus == "0,1" else ("all", -1))
    assert "deploy" not in services["node2"]


def has_nvidia():
    """Return whether containers can get GPUs: no engine reports it, but its NVIDIA driver's hook is installed then."""
    return shutil.which("nvidia-container-runtime-hook") is not None


@pytest.mark.skipif(has_nvidia(), reason="the NVIDIA container toolkit is here: nothing is refused")
def test_gpus_that_cannot_be_had_cost_the_running_cluster_nothing(make_cluster):
    cluster = make_cluster("gpus")
    cluster.run("up", "--nodes", "1")
    before = cluster.things()
    refused = cluster.run("up", "--gpus", "all", check=1)
    assert "no node can have GPUs 'all'" in refused.stderr
    assert 'could not select device driver "nvidia"' in refused.stderr
    assert "install the NVIDIA container toolkit" in refused.stderr
    assert cluster.things() == before
    assert cluster.ssh("node1", "hostname").stdout == "node1\n"


@pytest.mark.skipif(has_nvidia(), reason="the NVIDIA container toolkit is here: nothing is refused")
def test_up_keeps_the_gpus_that_plain_compose_gave(make_cluster, tmp_path):
    """No container with a GPU can start here: the error of `up` shows that it requests the GPUs again."""
    cluster = make_cluster("overlaid")
    document, overlay = tmp_path / "compose.yml", tmp_path / "gpu.yml"
    document.write_text(yaml.safe_dump(compose_document(ClusterSpec(cluster.name, 1, 31))))
    shipped = yaml.safe_load((PROJECT_DIR / "compose" / "gpu.yml").read_text())["services"]
    overlay.write_text(yaml.safe_dump({"services": {"node1": shipped["node1"]}}))
    plain = ["--project-name", project_name(cluster.name), "--project-directory", str(PROJECT_DIR)]
    files = ["--file", str(document), "--file", str(overlay)]
    subprocess.run([*compose_command(), *plain, *files, "up", "--detach"], capture_output=True)
    said = cluster.run("up", check=1).stderr
    assert 'could not select device driver "nvidia"' in said
    assert f"cluster.up --name {cluster.name} --gpus none" in said
    assert cluster.json("up", "--gpus", "none")["nodes"][0]["gpus"] is None
