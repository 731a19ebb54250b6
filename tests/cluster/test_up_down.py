"""`up` creates a cluster or repairs the existing one; `down` leaves nothing."""

import json
import re
import shutil
import socket
import subprocess
import threading

import pytest
from containers import OWN_SLOT, PROJECT_DIR, output

from cluster import Cluster
from cluster.base.spec import IMAGE, project_name
from cluster.engine.client import Engine


def test_up_makes_nodes_that_answer_and_down_leaves_nothing(make_cluster, tmp_path):
    cluster = make_cluster("fresh")
    done = cluster.run("up", "--json", "--nodes", "2", cwd=tmp_path)  # from any folder
    assert list(tmp_path.iterdir()) == []
    status = json.loads(done.stdout)
    assert [n["name"] for n in status["nodes"]] == ["node1", "node2"]
    assert {n["state"] for n in status["nodes"]} == {"running"}
    assert cluster.ssh("node2", "hostname").stdout == "node2\n"
    assert cluster.things()
    cluster.run("down")
    assert cluster.things() == []
    cluster.run("down")  # it is no error if there is nothing to remove


def test_up_does_not_hang_when_compose_may_do_less_at_a_time_than_there_are_nodes(
    make_cluster, monkeypatch
):
    """docker-compose 1.29 hangs then, and by default it does so from 65 nodes on: docker/compose issue 5864."""
    monkeypatch.setenv("COMPOSE_PARALLEL_LIMIT", "2")
    cluster = make_cluster("few")
    nodes = cluster.json("up", "--nodes", "3")["nodes"]
    assert {node["state"] for node in nodes} == {"running"}


def test_down_removes_a_volume_that_the_engine_has_made_by_itself(make_cluster):
    """Without labels: for a container that was still being created when an interrupted `up` had removed the volume."""
    cluster = make_cluster("late")
    volume = f"{project_name(cluster.name)}_shared"
    subprocess.run(["docker", "volume", "create", volume], check=True, capture_output=True)
    cluster.run("down")
    assert volume not in output(["docker", "volume", "ls", "--quiet"]).split()


def test_the_engine_tells_of_each_node_as_its_container_starts(make_cluster):
    """So that nothing connects earlier: the kernel would then delay every connection by a second."""
    cluster, heard = make_cluster("heard"), []
    with Engine().starts(cluster.name) as nodes:
        listener = threading.Thread(target=heard.extend, args=(nodes,))
        listener.start()
        cluster.run("up", "--nodes", "2")
    listener.join(10)
    assert not listener.is_alive()
    assert sorted(heard) == ["node1", "node2"]


def test_up_on_a_cluster_that_is_up_mends_what_is_broken(make_cluster):
    cluster = make_cluster("mend")
    cluster.run("up", "--nodes", "2")
    name = cluster.container("node2")
    before = output(["docker", "inspect", "-f", "{{.Id}}", cluster.container("node1")])
    subprocess.run(["docker", "kill", name], check=True, capture_output=True)
    status = cluster.json("status", check=0)
    assert [n["state"] for n in status["nodes"]] == ["running", "exited"]
    remedy = f"python -m cluster.up --name {cluster.name}"
    assert remedy in cluster.run("verify", check=1).stderr
    said = cluster.run("up").stdout
    assert f"next: python -m cluster.launch --name {cluster.name} |" in said
    assert {n["state"] for n in cluster.json("status")["nodes"]} == {"running"}
    assert cluster.ssh("node2", "hostname").stdout == "node2\n"
    assert output(["docker", "inspect", "-f", "{{.Id}}", cluster.container("node1")]) == before


def test_up_changes_the_number_of_nodes_both_ways(make_cluster):
    cluster = make_cluster("resize")
    cluster.run("up", "--nodes", "1")
    for size in (3, 2):
        status = cluster.json("up", "--nodes", str(size))
        assert len(status["nodes"]) == size
        hosts = cluster.ssh("node1", "cat", "/etc/hosts").stdout
        assert f"node{size}" in hosts
        assert f"node{size + 1}" not in hosts
    assert len(cluster.json("up")["nodes"]) == 2  # by default, the number stays


def test_a_cluster_that_grows_keeps_its_links(make_cluster):
    cluster = make_cluster("grow")
    cluster.run("up", "--nodes", "2", "--profile", "wan", "--seed", "5")
    status = cluster.json("up", "--nodes", "3")
    assert (status["profile"], status["seed"], len(status["links"])) == ("wan", 5, 6)
    shutil.rmtree(cluster.state_dir / "node2")  # nobody can log in there any more
    assert len(cluster.json("up")["links"]) == 6


def test_a_cluster_that_cannot_grow_stays_as_it_is(make_cluster):
    cluster = make_cluster("stays")
    cluster.run("up", "--nodes", "1", "--slot", OWN_SLOT)
    port = 22002 + 100 * OWN_SLOT
    with socket.create_server(("127.0.0.1", port)):
        done = cluster.run("up", "--nodes", "2", check=1)
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert cluster.ssh("node1", "hostname").stdout == "node1\n"


def test_without_its_keys_a_cluster_says_so(make_cluster):
    """As after `git clean`, or in another checkout."""
    cluster = make_cluster("locked")
    cluster.run("up", "--nodes", "1")
    shutil.rmtree(cluster.state_dir)
    for verb in ("status", "verify", "doctor"):
        done = subprocess.run(cluster.argv(verb), cwd=PROJECT_DIR, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert "Traceback" not in said
        assert "known_hosts" in said
    cluster.run("up")
    assert cluster.ssh("node1", "hostname").stdout == "node1\n"


def test_a_block_takes_down_what_it_brought_up_and_nothing_else(make_cluster):
    cluster = make_cluster("block")
    with Cluster(cluster.name, nodes=1) as ours:
        ours.up()
        with Cluster(cluster.name):
            pass
        assert cluster.things()
    assert cluster.things() == []


def test_two_new_clusters_begun_at_once_both_come_up(make_cluster):
    clusters = [make_cluster("left"), make_cluster("right")]
    begun = [cluster.start("up", "--json", "--nodes", "1") for cluster in clusters]
    said = [process.communicate(timeout=120) for process in begun]
    assert [process.returncode for process in begun] == [0, 0], said
    assert [c.ssh("node1", "hostname").stdout for c in clusters] == ["node1\n", "node1\n"]
    left, right = ({c.slot for c in Engine().containers(cluster.name)} for cluster in clusters)
    assert not left & right


def test_a_slot_whose_subnet_is_somebody_elses_is_left_to_them(make_cluster):
    """A foreign network occupies the first slot that no cluster holds."""
    cluster = make_cluster("beside")
    network = f"t-stranger-{cluster.name}"
    create = ["docker", "network", "create", network, "--subnet"]
    free = (slot for slot in range(40) if slot not in Engine().slots(beside=cluster.name))
    # Another test may take one of them first.
    slot = next(s for s in free if not subprocess.run([*create, f"10.77.{s}.0/24"]).returncode)
    try:
        cluster.run("up", "--nodes", "1")
    finally:
        subprocess.run(["docker", "network", "rm", network], check=True, capture_output=True)
    assert slot not in {c.slot for c in Engine().containers(cluster.name)}
    assert cluster.ssh("node1", "hostname").stdout == "node1\n"


def test_a_slot_is_taken_from_when_a_cluster_has_its_network(make_cluster):
    cluster = make_cluster("early")
    label = [f"gradwire.cluster={cluster.name}", f"gradwire.slot={OWN_SLOT}"]
    argv = ["docker", "network", "create", "--label", label[0], "--label", label[1]]
    network = f"{project_name(cluster.name)}_data"
    subprocess.run([*argv, network], check=True, capture_output=True)
    assert OWN_SLOT in Engine().slots(beside="another")
    assert OWN_SLOT not in Engine().slots(beside=cluster.name)
    done = cluster.run("down", check=1)  # a network without nodes or keys: its owner is unknown
    assert network in done.stderr and "--force" in done.stderr
    cluster.run("down", "--force")
    assert cluster.things() == []


def test_a_busy_port_is_named_and_nothing_half_made_stays(make_cluster):
    cluster = make_cluster("busy")
    port = 22002 + 100 * OWN_SLOT
    with socket.create_server(("127.0.0.1", port)):
        done = cluster.run("up", "--nodes", "3", "--slot", OWN_SLOT, check=1)
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert "try:" in done.stderr
    assert cluster.things() == []


def test_a_node_that_dies_while_it_starts_is_named_with_its_last_words(make_cluster, broken_image):
    cluster = make_cluster("dies")
    done = cluster.run("up", "--nodes", "2", "--image", broken_image, check=1)
    assert "a node died" in done.stderr
    assert re.search(r"node([12]): no disk on node\1", done.stderr)  # whichever died first
    assert cluster.things() == []


def test_a_missing_image_is_named_before_anything_starts(make_cluster):
    cluster = make_cluster("noimage")
    done = cluster.run("up", "--image", "t-there-is-none", check=2)
    assert "no image t-there-is-none" in done.stderr
    assert cluster.things() == []


@pytest.fixture
def broken_image(shared):  # shared: builds the node image
    """A user's image whose nodes print an error and exit."""
    name = f"{shared.name}-broken"
    subprocess.run(
        ["docker", "build", "--tag", name, "-"],
        input=f'FROM {IMAGE}\nCMD ["sh", "-c", "echo no disk on $(hostname); exit 3"]\n',
        text=True,
        check=True,
        capture_output=True,
    )
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], check=True, capture_output=True)
