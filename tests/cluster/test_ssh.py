"""SSH is the only way into a node: with keys only, pinned host keys, and on loopback only."""

import shutil
import socket
import subprocess
import sys

from containers import PROJECT_DIR, TIMEOUT_S, output

from cluster.base.spec import IMAGE


def test_the_plain_client_reaches_every_node_by_name(shared):
    for rank, node in enumerate(("node1", "node2", "node3")):
        done = shared.ssh(node, "hostname")
        assert (done.stdout, done.returncode) == (f"{node}\n", 0), (rank, done.stderr)


def test_nodes_reach_one_another_by_name(unshaped):
    done = unshaped.ssh("node1", "ssh", "node3", "hostname")
    assert (done.stdout, done.returncode) == ("node3\n", 0), done.stderr


def test_every_node_knows_every_name_and_none_is_loopback(shared):
    for node in ("node1", "node2", "node3"):
        for other in ("node1", "node2", "node3"):
            address = shared.exec(node, "getent", "ahostsv4", other).split()[0]
            assert address.startswith("10.77."), f"{node} says {other} is {address}"


def test_keys_are_the_owners_alone(shared):
    secrets = [p for p in shared.state_dir.rglob("*ed25519*") if p.suffix != ".pub"]
    assert len(secrets) == 1 + 2 * 3
    assert {oct(p.stat().st_mode & 0o777) for p in secrets} == {"0o600"}
    assert oct(shared.state_dir.stat().st_mode & 0o777) == "0o700"


def test_no_key_is_in_the_image():
    found = output(
        ["docker", "run", "--rm", "--network", "none", IMAGE]
        + [
            "find",
            "/etc/ssh",
            "/root",
            "/opt/gradwire",
            "-name",
            "*ed25519*",
            "-o",
            "-name",
            "authorized_keys",
        ]
    )
    assert found == ""


def test_a_stranger_without_the_key_is_turned_away(shared, tmp_path):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True
    )
    config = shared.state_dir / "ssh_config"
    base = [
        "ssh",
        "-F",
        str(config),
        "-o",
        "BatchMode=yes",
        "-o",
        f"IdentityFile={tmp_path / 'key'}",
    ]
    # -F also names our own key: remove it
    plain = tmp_path / "config"
    plain.write_text(
        "".join(
            line + "\n" for line in config.read_text().splitlines() if "IdentityFile" not in line
        )
    )
    base[2] = str(plain)
    done = subprocess.run([*base, "node1", "true"], capture_output=True, text=True)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_a_node_with_another_host_key_is_refused(make_cluster):
    cluster = make_cluster("pinned")
    cluster.run("up", "--nodes", "2")
    known = cluster.state_dir / "known_hosts"
    lines = known.read_text().splitlines()
    stranger = lines[1].split()[-2:]
    known.write_text(f"{lines[0].split()[0]} {' '.join(stranger)}\n{lines[1]}\n")
    done = cluster.run("shape", "--profile", "mobile", check=1)
    assert "node1" in done.stderr
    assert "key" in done.stderr


def test_ssh_listens_on_loopback_only(shared):
    node = shared.json("status")["nodes"][0]
    published = output(["docker", "port", shared.container("node1")])
    assert published.split() == ["22/tcp", "->", f"127.0.0.1:{node['ssh_port']}"]
    with socket.create_connection(("127.0.0.1", node["ssh_port"]), timeout=5) as sock:
        assert sock.recv(7) == b"SSH-2.0"


def test_two_clusters_with_different_names_live_side_by_side(shared, make_cluster):
    second = make_cluster("second")
    second.run("up", "--nodes", "2", "--profile", "poor")
    shared.run("shape", "--clear")
    assert shared.ssh("node2", "hostname").stdout == second.ssh("node2", "hostname").stdout
    ours, theirs = shared.json("status"), second.json("status")
    assert not {n["address"] for n in ours["nodes"]} & {n["address"] for n in theirs["nodes"]}
    assert (len(ours["links"]), len(theirs["links"])) == (0, 2)
    second.run("down")
    assert second.things() == []
    assert shared.ssh("node2", "hostname").returncode == 0


def test_a_cluster_of_another_checkout_is_left_alone(shared, tmp_path):
    """Each checkout has its own keys, so neither may take over the other's cluster."""
    copy = tmp_path / "checkout"
    shutil.copytree(
        shared.state_dir.parents[1],
        copy,
        ignore=shutil.ignore_patterns(".git", ".venv", ".gradwire", "runs", "__pycache__"),
    )
    done = shared.run("up", check=1, cwd=copy)
    assert "was brought up from" in done.stderr
    assert shared.ssh("node1", "true").returncode == 0


SHOW_THREADS = """
import atexit, runpy, sys, threading
atexit.register(lambda: print("left:", [thread.name for thread in threading.enumerate()[1:]]))
sys.argv = ["cluster.status", "--name", sys.argv[1]]
runpy.run_module("cluster.status", run_name="__main__")
"""


def test_no_thread_outlives_its_connection(shared):
    """Python up to 3.13 may crash at exit if a daemon thread is inside a library then."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW_THREADS, shared.name],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout.splitlines()[-1] == "left: []"


def test_who_came_often_without_logging_in_is_let_in_all_the_same(unshaped):
    """OpenSSH by default shuts such an address out for a while, such as a client killed while it waits for nodes."""
    knock = "for _ in $(seq 60); do exec 3<> /dev/tcp/node3/22; exec 3>&-; done"
    unshaped.exec("node1", "bash", "-c", knock)
    done = unshaped.ssh("node1", "ssh", "node3", "hostname")
    assert (done.stdout, done.returncode) == ("node3\n", 0), done.stderr
