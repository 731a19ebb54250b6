"""Hosts without an engine: orders for their nodes, what changes replace a node, the nodes as Docker would list them."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from cluster.base.errors import ClusterError, PrerequisiteError, SlotTaken, UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import compose_document, compose_text
from cluster.engine.resources import Limit
from cluster.hosts import bare_compose, bare_host
from cluster.hosts.bare_compose import LABEL_CONFIG, BareCompose
from cluster.hosts.bare_host import BareHost
from cluster.hosts.bare_image import ENTER_SCRIPT, RECEIVE, describe, new_folder
from cluster.hosts.clean_up import bare_clean_up_command
from cluster.hosts.hosts_file import Host, load_hosts
from node.bare import device
from node.bare.bundle import bundle
from node.vxlan import host_lines
from node.wire.commands import WireError
from protocol.bare import IMAGES_FOLDER, BareNode, Image, Images, Listed, Nodes
from protocol.reader import document, read
from protocol.vxlan_plan import VxlanPlan

SPEC = ClusterSpec("lab", 2)
WEST = Host("west", "root@west", engine="none", internal_ip="10.1.0.1")
EAST = Host("east", "root@east", engine="none", internal_ip="10.1.0.2")


class FakeTunnel:
    """A host whose answers are given by verb; keeps what it was asked."""

    has_ended = False

    def __init__(self, user="0", **answers):
        self.user, self.answers, self.asked = user, answers, []

    def run(self, argv, stdin=""):
        if argv == ["id", "-u"]:
            return subprocess.CompletedProcess(argv, 0, f"{self.user}\n", "")
        verb = argv[4]
        self.asked.append((verb, json.loads(stdin) if stdin else None))
        answer = self.answers.get(verb, "{}")
        if isinstance(answer, tuple):
            return subprocess.CompletedProcess(argv, answer[0], "", answer[1])
        return subprocess.CompletedProcess(argv, 0, answer, "")


def listed(order, state="running", **changes):
    values = {"exit_code": 0, "out_of_memory": False, "started": 1e9, "slow_start": True}
    values |= {"cpu_period_us": 0, "cpu_quota_us": 0, "memory_bytes": 0} | changes
    return Listed(order.name, order.image, order.labels, state, **values)


def host_with(*nodes, host=WEST, **answers):
    answers = {
        "list": json.dumps(document(Nodes(list(nodes)))),
        "images": json.dumps(document(Images([IMAGE]))),
    } | answers
    return BareHost(host, FakeTunnel(**answers))


IMAGE = Image("0123", "gradwire-node", ["sha256:1"], {"gradwire.source": "abc"}, ["PATH=/bin"])


@pytest.fixture
def orders(monkeypatch):
    """A function that returns the orders which a host gets for these limits, with a digest of the keys."""

    def make(limits=None, keys=None, spec=SPEC):
        monkeypatch.setattr(bare_compose, "_keys", lambda *_: keys or {"id": "a2V5"})
        west, east = host_with(), host_with(host=EAST)
        engine = SimpleNamespace(parts=lambda spec: [(west, ["node1"]), (east, ["node2"])])
        with BareCompose(spec.name, west, engine) as compose:
            compose.give(compose_text(compose_document(spec, limits, mounts_keys=False)))
            compose.finish(spec)
        ((_, made),) = [one for one in west.tunnel.asked if one[0] == "make"]
        return [BareNode(**node) for node in made["nodes"]], west, compose

    return make


def test_an_order_is_what_compose_would_make(orders):
    (node1, _), west, _ = orders({"node1": Limit(0.5, 2**30)})
    assert (node1.name, node1.hostname, node1.image) == ("gradwire-lab-node1", "node1", "0123")
    assert node1.labels["gradwire.cluster"] == "lab"
    vxlan = read(VxlanPlan, node1.vxlan)
    assert host_lines(vxlan) == "10.77.0.11\tnode1\n10.77.0.12\tnode2\n"
    assert (node1.cpu_period_us, node1.cpu_quota_us, node1.memory_bytes) == (4000, 2000, 2**30)
    assert node1.ssh_port == node1.vxlan["port"] == 22001
    peer = node1.vxlan["peers"]["node2"]
    assert (peer["host"], peer["port"]) == ("10.1.0.2", 22002)
    assert west.tunnel.asked[-1][0] == "start"


def test_what_a_running_node_can_change_is_no_reason_to_replace_it(orders):
    def digest(**changes):
        (node1, _), *_ = orders(**changes)
        return node1.labels[LABEL_CONFIG]

    same = digest()
    assert digest(limits={"node1": Limit(0.5)}) == same
    assert digest(keys={"id": "a2V5", "plan.json": "cGxhbg=="}) == same
    assert digest(keys={"id": "bmV3"}) != same
    assert digest(spec=ClusterSpec("lab", 2, 3)) != same


def test_a_node_that_is_as_it_should_be_is_only_started(orders):
    made, _, compose = orders()
    again = host_with(*[listed(node) for node in made])
    compose._host, compose._is_finished = again, False
    compose.finish(SPEC)
    assert [verb for verb, _ in again.tunnel.asked if verb in ("make", "start")] == ["start"]
    assert compose.has_ended(SPEC)


def test_a_port_that_is_taken_is_a_slot_that_is_taken(orders):
    _, _, compose = orders()
    taken = (1, "node.bare: port 22001 on 127.0.0.1 is taken: Address already in use")
    compose._host, compose._is_finished = host_with(start=taken), False
    with pytest.raises(SlotTaken, match="port 22001") as failed:
        compose.finish(SPEC)
    assert "compose" not in failed.value.message and "'lab'" in failed.value.message


@pytest.mark.parametrize(
    ("answer", "words", "hint"),
    [
        ((1, "node.bare: runc create: no cgroups"), "runc create: no cgroups", "cluster.doctor"),
        ((255, ""), "does not answer any more", "ssh root@west true"),
    ],
)
def test_another_failure_is_told_in_words_for_a_host_without_docker(orders, answer, words, hint):
    _, _, compose = orders()
    compose._host, compose._is_finished = host_with(make=answer), False
    with pytest.raises(ClusterError) as failed:
        compose.finish(SPEC)
    assert failed.value.message.startswith("'lab' could not be brought up: host west")
    assert failed.value.message.endswith(words) and hint in failed.value.hint


def test_a_disk_that_is_full_is_the_hosts_and_not_dockers(orders):
    _, _, compose = orders()
    full = (1, "node.bare: [Errno 28] No space left on device: '/var/lib/gradwire/nodes/x'")
    compose._host, compose._is_finished = host_with(make=full), False
    with pytest.raises(ClusterError, match=r"host west: .*No space left on device") as failed:
        compose.finish(SPEC)
    assert "compose" not in failed.value.message and "'lab'" in failed.value.message
    assert failed.value.hint == "on host west: make room, or use a larger disk"


def test_nodes_are_listed_and_inspected_as_containers_are(orders):
    (node1, node2), *_ = orders()
    ended = listed(node2, "exited", exit_code=137, out_of_memory=True, slow_start=False)
    host = host_with(listed(node1, cpu_period_us=4000, cpu_quota_us=2000), ended)
    one, two = host.containers("lab")
    assert (one.node, one.state, one.host, one.slot) == ("node1", "running", "west", 0)
    assert host.cluster("lab") == SPEC and host.slots(beside="other") == {0}
    assert host.containers("other") == []
    assert host.limits([one, two]) == {"node1": Limit(0.5), "node2": Limit()}
    assert host.slow_starts([two]) == {"node2": False}
    state = host.inspect(two.id)["State"]
    assert (state["Running"], state["ExitCode"], state["OOMKilled"]) == (False, 137, True)
    assert host.inspect("gone") is None
    assert host.image_id("gradwire-node") == "0123" and host.image_id("mine") is None
    assert host.image_content("gradwire-node") == (["sha256:1"], {"gradwire.source": "abc"})


def test_a_host_to_which_no_image_ever_came_has_no_nodes():
    host = host_with(list=(44, ""), images=(44, ""), forget=(44, ""))
    assert host.containers() == [] and host.image_id("gradwire-node") is None
    assert host.remove("lab") == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((255, "closed"), "host west does not answer any more"),
        ((1, "node.bare: overlay: not supported"), "host west: overlay: not supported"),
        ("[]", "host west: node.bare list: "),
        ("no JSON", "host west: node.bare list: "),
    ],
)
def test_what_a_host_cannot_do_is_one_line(answer, words):
    with pytest.raises(ClusterError) as failed:
        host_with(list=answer).containers()
    assert words in failed.value.message and "\n" not in failed.value.message


def test_limits_are_applied_also_where_another_node_must_be_made(orders):
    made, _, _ = orders({"node1": Limit(0.5), "node2": Limit(0.5)})
    _, _, compose = orders({"node1": Limit(0.5), "node2": Limit(0.5)})
    host = host_with(listed(made[0], cpu_period_us=4000, cpu_quota_us=4000), listed(made[1]))
    compose._host, compose._is_finished = host, False
    compose.finish(SPEC)
    limits = [order for verb, order in host.tunnel.asked if verb == "limit"]
    assert [(one["name"], one["cpu_quota_us"]) for one in limits] == [
        ("gradwire-lab-node1", 2000),
        ("gradwire-lab-node2", 2000),
    ]


def test_an_image_is_a_folder_for_each_of_its_tags_and_an_unfinished_one_is_not_used():
    local = SimpleNamespace(
        inspect_image=lambda tag: {"Id": "sha256:" + "a" * 64, "Config": {}, "RootFS": {}}
    )
    one, other = (describe(local, tag).id for tag in ("gradwire-node", "mine"))
    assert one != other and one.startswith("a" * 24)
    assert new_folder().startswith(".new-") and new_folder() != new_folder()
    assert "pivot_root" in ENTER_SCRIPT and "chroot" not in ENTER_SCRIPT


@pytest.mark.parametrize(("bytes_left_out", "left"), [(0, ["new"]), (5000, [])])
def test_an_image_whose_transfer_breaks_off_leaves_nothing_on_the_host(
    tmp_path, bytes_left_out, left
):
    (tmp_path / "file").write_bytes(bytes(20_000))
    packed = subprocess.run(
        ["tar", "-c", "-b", "1", "-C", tmp_path, "-f", "-", "file"], stdout=-1, check=True
    )
    images = tmp_path / "images"
    receive = RECEIVE.replace(IMAGES_FOLDER, str(images))
    sent = packed.stdout[: len(packed.stdout) - bytes_left_out]
    done = subprocess.run(["sh", "-c", receive, "sh", "new"], input=sent, stderr=-1, check=False)
    assert (done.returncode == 0) == bool(left), done.stderr
    assert [one.name for one in images.iterdir()] == left


def test_only_root_can_make_nodes_and_they_have_no_gpus():
    with pytest.raises(PrerequisiteError, match="root@west is not root there"):
        BareHost(WEST, FakeTunnel(user="1000"))
    with pytest.raises(UsageError, match="no GPUs"):
        host_with().check_gpus("gradwire-node", "all")


def test_a_lost_hosts_nodes_are_removed_by_one_command():
    said = bare_clean_up_command(WEST, "lab")
    assert said == f"ssh root@west '/var/lib/gradwire/enter remove-all lab {PROJECT_DIR}'"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[{name: a, ssh: a, engine: podman}]", r"hosts\[0\].engine is 'podman'"),
        ("[{name: a, ssh: a, engine: none, docker_socket: /x}]", "exclude each other"),
        (
            "[{name: a, ssh: a, internal_ip: 10.0.0.1, engine: none}, {name: b, ssh: b, internal_ip: 10.0.0.2}]",
            "some hosts have engine: none, and others not",
        ),
        ("[{name: a, ssh: a, engine: none}]\nencrypted: yes", "only Docker encrypts"),
    ],
)
def test_hosts_files_that_cannot_be_are_refused(text, complaint, tmp_path):
    path = tmp_path / "hosts.yml"
    path.write_text(f"hosts: {text}\n")
    with pytest.raises(UsageError, match=complaint):
        load_hosts(path)


def test_a_node_has_namespaces_and_few_capabilities_and_no_devices(orders):
    (node1, _), *_ = orders({"node1": Limit(0.5, 2**30)})
    config = bundle(node1, IMAGE, "/root", "/shared-of-lab")
    assert {one["type"] for one in config["linux"]["namespaces"]} >= {"pid", "mount", "network"}
    process = config["process"]
    assert process["noNewPrivileges"] and "CAP_SYS_ADMIN" not in process["capabilities"]["bounding"]
    assert process["env"] == ["PATH=/bin", "HOSTNAME=node1", "HOME=/root"]
    resources = config["linux"]["resources"]
    assert resources["devices"][0] == {"allow": False, "access": "rwm"}
    assert resources["cpu"] == {"period": 4000, "quota": 2000}
    assert resources["memory"] == {"limit": 2**30, "swap": 2**30}
    assert config["linux"]["sysctl"]["net.ipv4.ip_forward"] == "1"
    refused = {name for rule in config["linux"]["seccomp"]["syscalls"] for name in rule["names"]}
    assert {"unshare", "mount", "bpf", "clone3"} <= refused
    (shared,) = [mount for mount in config["mounts"] if mount["destination"] == "/shared"]
    assert shared["source"] == "/shared-of-lab"


def test_old_kernels_take_one_node_a_host(monkeypatch):
    def route(argv):
        return [{"dev": "lo" if argv[-1] == "10.1.0.1" else "eth0"}]

    monkeypatch.setattr(device, "run_json", route)
    monkeypatch.setattr(device.platform, "release", lambda: "6.1.0-18-amd64")
    device._refuse_old_kernel(["10.1.0.2"])
    with pytest.raises(WireError, match=r"need Linux 6\.5, and this is 6\.1\.0-18-amd64"):
        device._refuse_old_kernel(["10.1.0.2", "10.1.0.1"])
    monkeypatch.setattr(device.platform, "release", lambda: "6.12.5")
    device._refuse_old_kernel(["10.1.0.1"])


def test_a_log_is_read_without_what_conmon_adds():
    host = host_with()
    line = "2026-11-26T20:05:01+00:00 stdout F node1: sshd is up"
    host.tunnel.open = lambda argv: subprocess.Popen(["echo", line], stdout=-1, text=True)
    assert list(host.follow_log("node1", follow=False, lines=9)) == ["node1: sshd is up"]
    assert host.log_tail("node1") == "node1: sshd is up"
    host.tunnel.open = lambda argv: subprocess.Popen(["true"], stdout=-1, text=True)
    assert host.log_tail("gone") == ""


def test_a_log_waits_for_a_session_that_is_free_and_one_that_breaks_off_is_no_end(monkeypatch):
    """A host's sshd gives one connection ten sessions, and refuses more."""
    host, refused, read = host_with(), ["sh", "-c", "exit 255"], ["echo", "a b c said"]
    answers = [refused, refused, read]
    host.tunnel.open = lambda argv: subprocess.Popen(answers.pop(0), stdout=-1, text=True)
    assert host.log_tail("node1") == "said" and not answers
    broken = ["sh", "-c", "echo a b c said; exit 255"]
    host.tunnel.open = lambda argv: subprocess.Popen(broken, stdout=-1, text=True)
    with pytest.raises(ClusterError, match="host west does not answer any more"):
        host.log_tail("node1")
    monkeypatch.setattr(bare_host, "SESSION_WAIT_S", 0.0)
    host.tunnel.open = lambda argv: subprocess.Popen(refused, stdout=-1, text=True)
    with pytest.raises(ClusterError, match="no more logs at a time"):
        host.log_tail("node1")
