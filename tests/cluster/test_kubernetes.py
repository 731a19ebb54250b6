"""What `export --kubernetes` writes runs in containers like pods: a data device each, the run's links, the run's ranks.

There is no Kubernetes here. Docker stands for it: a network with the pods' DNS names, each pod's order mounted, its
command, capabilities and sysctls as the manifest has them.
"""

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from containers import PREFIX, TIMEOUT_S, bring_up, eventually, last_run, output

from cluster.base.spec import IMAGE
from cluster.export import main as export

pytestmark = pytest.mark.slow

ROUND_TRIPS = Path(__file__).with_name("round_trips.py")
ROUND_TRIP = re.compile(r"rank (\d): round trip ([0-9.]+) ms")
SLEEPS = "import time; print('sleeps', flush=True); time.sleep(600)"
# Once the others have found it: a pod that is gone has no name in DNS any more.
FAILS = """\
import os, time
while not os.path.exists("/tmp/fail"):
    time.sleep(0.05)
raise SystemExit(7)
"""


class Pods:
    """Containers as a manifest describes its pods."""

    def __init__(self, manifest, tmp_path):
        documents = list(yaml.safe_load_all(manifest))
        self.maps = {one["metadata"]["name"]: one for one in _of_kind(documents, "ConfigMap")}
        (self.job_set,) = _of_kind(documents, "JobSet")
        self.network = f"{PREFIX}pods"
        self._folder = tmp_path
        self._names = {}

    def start(self):
        output(["docker", "network", "create", self.network])
        name, subdomain = (
            self.job_set["metadata"]["name"],
            self.job_set["spec"]["network"]["subdomain"],
        )
        for replicated in self.job_set["spec"]["replicatedJobs"]:
            node, pod = replicated["name"], replicated["template"]["spec"]["template"]["spec"]
            self._names[node] = f"{PREFIX}pod-{node}"
            host = ["--network-alias", f"{name}-{node}-0-0.{subdomain}", "--network", self.network]
            argv = ["docker", "run", "--detach", "--name", self._names[node], *host]
            output([*argv, *self._flags(pod), *pod["containers"][0]["command"]])

    def _flags(self, pod):
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert not security["allowPrivilegeEscalation"]
        flags = ["--security-opt", "no-new-privileges:true", "--cap-drop", "ALL"]
        flags += [f"--cap-add={capability}" for capability in security["capabilities"]["add"]]
        sysctls = pod["securityContext"]["sysctls"]
        flags += [f"--sysctl={one['name']}={one['value']}" for one in sysctls]
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        folder = self._mounted(volume["configMap"]["name"])
        return [*flags, "--volume", f"{folder}:{mount['mountPath']}:ro", container["image"]]

    def _mounted(self, config_map):
        folder = self._folder / config_map
        folder.mkdir()
        for name, text in self.maps[config_map]["data"].items():
            (folder / name).write_text(text)
        for name, text in self.maps[config_map].get("binaryData", {}).items():
            (folder / name).write_bytes(base64.b64decode(text))
        return folder

    def container(self, node):
        return self._names[node]

    def wait(self):
        """Wait for the ends of all pods; return their exit codes and logs, by node."""
        argv = ["docker", "wait", *self._names.values()]
        codes = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
        return dict(zip(self._names, map(int, codes.split()), strict=True)), self.logs()

    def logs(self):
        done = {
            node: subprocess.run(["docker", "logs", name], capture_output=True, text=True)
            for node, name in self._names.items()
        }
        return {node: one.stdout + one.stderr for node, one in done.items()}

    def remove(self):
        for name in self._names.values():
            subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True)
        subprocess.run(["docker", "network", "rm", self.network], capture_output=True)


@pytest.fixture
def pods(tmp_path):
    """A function that starts the pods of a manifest; they are removed afterwards."""
    made = []

    def make(manifest):
        made.append(Pods(manifest, tmp_path))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture(scope="module")
def exported(request):
    """The folder of a run of ROUND_TRIPS on links as mobile, and its manifest."""
    mobile = request.getfixturevalue("shared")
    bring_up(mobile, "--profile", "mobile")
    mobile.run("launch", "--no-verify", "--", str(ROUND_TRIPS))
    folder = last_run(mobile, "round_trips")
    assert export([str(folder), "--kubernetes", IMAGE]) == 0
    return folder, (folder / "kubernetes.yaml").read_text()


def test_a_run_does_the_same_in_pods_over_the_same_links(exported, pods):
    folder, manifest = exported
    codes, logs = pods(manifest).wait()
    assert codes == dict.fromkeys(("node1", "node2", "node3"), 0), logs
    rows = json.loads((folder / "links.json").read_text())
    delay_ms = {(link["src"], link["dst"]): link["delay_ms"] for link in rows}
    found = {int(rank): float(ms) for rank, ms in ROUND_TRIP.findall("".join(logs.values()))}
    for rank in (1, 2):
        node = f"node{rank + 1}"
        asked_ms = delay_ms["node1", node] + delay_ms[node, "node1"]
        assert asked_ms - 0.3 <= found[rank] <= 1.2 * asked_ms + 5, logs  # as exact as a contract's
        assert f"rank {rank}: sum 6" in logs[node]
        assert "4 links by" in logs[node]
        assert "not measured" in logs[node]


def test_the_first_rank_that_fails_decides_a_pods_exit_code_and_a_pod_ends_when_told(
    exported, pods
):
    _, manifest = exported
    running = pods(with_programs(manifest, node1=SLEEPS, node2=FAILS, node3=SLEEPS))
    eventually(lambda: all("sleeps" in running.logs()[node] for node in ("node1", "node3")))
    output(["docker", "exec", running.container("node2"), "touch", "/tmp/fail"])
    for node in ("node1", "node3"):
        output(["docker", "stop", "--time", "60", running.container(node)])
    codes, logs = running.wait()
    assert codes == {"node1": 128 + 15, "node2": 7, "node3": 128 + 15}, logs


def with_programs(manifest, **programs):
    """Return the manifest with other programs of its ranks, as `python3 -c` takes them."""
    documents = list(yaml.safe_load_all(manifest))
    for one in _of_kind(documents, "ConfigMap"):
        order = json.loads(one["data"]["pod.json"])
        program = programs[order["vxlan"]["node"]]
        order["ranks"] = [rank | {"argv": ["python3", "-c", program]} for rank in order["ranks"]]
        one["data"]["pod.json"] = json.dumps(order)
    return yaml.safe_dump_all(documents)


def _of_kind(documents, kind):
    return [one for one in documents if one["kind"] == kind]
