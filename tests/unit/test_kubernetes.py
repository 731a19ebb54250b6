"""The manifest of a run for Kubernetes: pods that find each other, with the run's links and ranks; what is refused.

That the manifest is valid for Kubernetes' and JobSet's own schemas was checked by hand: docs/LOG.md, 2026-11-26.
"""

import base64
import io
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from past_runs import PROGRAM, write_run

from cluster.base.spec import ClusterSpec
from cluster.export import main
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run.program import Program
from cluster.schedule.events import Event
from protocol.pod_order import parse_pod_order

IMAGE = "registry.example:5000/lab/gradwire-node:1"
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
NODES = ["node1", "node2", "node3"]


@pytest.fixture
def export(tmp_path, capsys):
    """A function that exports a run and returns its documents by kind and name."""

    def run(**parts):
        folder = write_run(tmp_path / "20261121-101500-mobile-fedavg", **parts)
        assert main([str(folder), "--kubernetes", IMAGE]) == 0, capsys.readouterr().err
        path = folder / "kubernetes.yaml"
        assert capsys.readouterr().out == f"{path}\n"
        documents = yaml.safe_load_all(path.read_text())
        return {(one["kind"], one["metadata"]["name"]): one for one in documents}

    return run


def order_of(documents, node):
    text = documents["ConfigMap", f"gradwire-lab-{node}"]["data"]["pod.json"]
    return parse_pod_order(text)


def pod_of(documents, node):
    """Return the pod of a replicated job."""
    replicated = documents["JobSet", "gradwire-lab"]["spec"]["replicatedJobs"]
    (found,) = (one for one in replicated if one["name"] == node)
    return found["template"]["spec"]["template"]["spec"]


def test_every_node_is_a_pod_with_its_own_order_ranks_and_links(export):
    documents = export()
    plans = link_plans(ClusterSpec("lab", 3).nodes, make_link_spec("mobile", "full", 1, "auto"))
    for rank, node in enumerate(NODES):
        order = order_of(documents, node)
        (start,) = order.ranks
        assert order.vxlan.node == node
        assert order.plan == plans[node]  # on any wire, although the run's were of nfqueue
        assert start.argv == list(PROGRAM.argv)
        assert (start.env["RANK"], start.env["MASTER_ADDR"]) == (str(rank), "node1")
        pod = pod_of(documents, node)
        assert pod["volumes"][0]["configMap"]["name"] == f"gradwire-lab-{node}"
        assert pod["containers"][0]["image"] == IMAGE


def test_pods_are_found_by_the_names_that_jobset_gives_them(export):
    documents = export()
    job_set = documents["JobSet", "gradwire-lab"]
    network = job_set["spec"]["network"]
    assert network["enableDNSHostnames"]
    assert network["publishNotReadyAddresses"]  # tunnels are made before any pod is ready
    for node in NODES:
        peers = order_of(documents, node).vxlan.peers
        assert sorted(peers) == [other for other in NODES if other != node]
        for name, peer in peers.items():
            host, _, subdomain = peer.host.partition(".")
            assert (host, subdomain) == (f"gradwire-lab-{name}-0-0", network["subdomain"])
            assert DNS_LABEL.fullmatch(host)


def test_only_pods_of_the_same_set_may_send_to_the_tunnels(export):
    policy = export()["NetworkPolicy", "gradwire-lab"]["spec"]
    (rule,) = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress"]
    assert rule["from"] == [{"podSelector": policy["podSelector"]}]
    assert rule["ports"] == [{"protocol": "UDP", "port": 4789}]


def test_a_pod_has_no_more_than_its_links_need(export):
    pod = pod_of(export(), "node1")
    security = pod["containers"][0]["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "SYS_CHROOT" not in security["capabilities"]["add"]
    assert not security["allowPrivilegeEscalation"]
    assert not pod["automountServiceAccountToken"]


def test_limits_and_numbered_gpus_are_those_of_the_run(export):
    documents = export(limits={"node2": {"cpus": 0.5, "memory_bytes": 2**30, "gpus": "0,1"}})
    limits = pod_of(documents, "node2")["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "500m", "memory": str(2**30), "nvidia.com/gpu": "2"}
    assert pod_of(documents, "node1")["containers"][0]["resources"]["limits"] == {}


def test_forwarding_is_asked_for_only_where_links_need_it(tmp_path, capsys):
    folder = write_run(tmp_path / "ring", topology="ring", size=4)
    assert main([str(folder), "--kubernetes", IMAGE]) == 0, capsys.readouterr().err
    text = (folder / "kubernetes.yaml").read_text()
    assert "--allowed-unsafe-sysctls net.ipv4.conf.all.send_redirects,net.ipv4.ip_forward" in text
    full = write_run(tmp_path / "full")
    assert main([str(full), "--kubernetes", IMAGE]) == 0
    assert "unsafe" not in (full / "kubernetes.yaml").read_text()


def test_a_programs_files_travel_with_it(export, tmp_path):
    script = tmp_path / "mine" / "train.py"
    script.parent.mkdir()
    script.write_text("print('hello')\n")
    program = Program("train", ("python3", "train.py"), script.parent)
    documents = export(program=program)
    config_map = documents["ConfigMap", "gradwire-lab-node3"]
    packed = base64.b64decode(config_map["binaryData"]["program.tar"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["train.py"]
    (start,) = order_of(documents, "node3").ranks
    assert start.cwd == "/root/work/20261121-101500-mobile-fedavg"


def test_without_links_no_plan_is_applied(tmp_path):
    folder = write_run(tmp_path / "plain")
    (folder / "links.json").write_text("[]")
    assert main([str(folder), "--kubernetes", IMAGE]) == 0
    (first, *_) = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    assert parse_pod_order(first["data"]["pod.json"]).plan is None


def _large(folder):
    (folder / "weights.bin").write_bytes(bytes(800_000))
    return Program("train", ("python3", "train.py"), folder)


REFUSED = {
    "schedule": (lambda _: {"schedule": (Event("after 5 s heal", 5.0, heal=True),)}, "a schedule"),
    "resume": (lambda folder: {"program": replace(PROGRAM, resume=folder)}, "checkpoints"),
    "GPUs": (lambda _: {"limits": {"node1": {"gpus": "all"}}}, "Kubernetes wants a number"),
    "size": (lambda folder: {"program": _large(folder)}, "too large for a ConfigMap: 1.1 MB"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_pods_cannot_do_is_refused_and_nothing_is_written(what, tmp_path, capsys):
    make, complaint = REFUSED[what]
    (tmp_path / "files").mkdir()
    folder = write_run(tmp_path / "run", **make(tmp_path / "files"))
    assert main([str(folder), "--kubernetes", IMAGE]) == 2
    assert complaint in capsys.readouterr().err
    assert not (folder / "kubernetes.yaml").exists()


def test_an_images_name_is_checked(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    assert main([str(folder), "--kubernetes", "No Image"]) == 2
    assert "'No Image' is no image's name" in capsys.readouterr().err
    assert main([str(Path(tmp_path)), "--kubernetes", IMAGE]) == 2
    assert "is no run folder" in capsys.readouterr().err
