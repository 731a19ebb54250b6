"""The requested links are in force whenever a program runs over them, even after nodes were restarted or replaced."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from containers import eventually

# Near and fast, so that a proof is short; slow enough to be told from unshaped links.
PROFILE = "rate_mbyte_s: 8\ndelay_ms: 10\n"


@pytest.fixture
def shaped(shared, tmp_path):
    profile = tmp_path / "near.yml"
    profile.write_text(PROFILE)
    shared.run("up", "--nodes", "3", "--profile", profile)
    return shared


@pytest.fixture
def short(tmp_path):
    script = tmp_path / "short.py"
    script.write_text("print('ran')\n")
    return script


def docker(verb, cluster, *nodes):
    names = [cluster.container(node) for node in nodes]
    subprocess.run(["docker", verb, *names], check=True, capture_output=True)


def is_shaped(cluster, node):
    return "htb" in cluster.exec(node, "tc", "qdisc", "show")


def delays(cluster):
    return [link["delay_ms"] for link in cluster.json("status")["links"]]


def check_laid_again(cluster, done):
    assert "applying them again" in done.stderr
    assert all(is_shaped(cluster, node) for node in ("node1", "node2", "node3"))


# After a reboot, all nodes have ended.
@pytest.mark.parametrize("ended", ["restart", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_launch_after_a_restart_of_all_nodes_lays_the_links_again_and_proves_them(
    shaped, short, ended
):
    docker(ended, shaped, "node1", "node2", "node3")
    done = shaped.run("launch", "--", short, check=None)
    assert all(is_shaped(shaped, node) for node in ("node1", "node2", "node3"))
    if ended == "restart":
        assert "applying them again" in done.stderr
    # On a busy machine some links may be undecided, but none is broken.
    proved = re.search(
        r"^contract: (all 6 links hold|\d of 6 links undecided: )", done.stderr, re.M
    )
    assert proved, done.stderr
    assert done.returncode == (0 if "hold" in proved[1] else 1)


@pytest.mark.slow
def test_a_launch_during_a_temporary_change_has_no_unshaped_nodes_after_a_restart(shaped, short):
    """The change alters links, so these differ from the recorded ones on purpose. But it removes none."""
    changing = shaped.start("shape", "--link", "node1:node3", "--delay", "90", "--for", "10m")
    try:
        eventually(lambda: 90 in delays(shaped))
        docker("restart", shaped, "node1", "node2", "node3")
        eventually(lambda: shaped.ssh("node3", "true").returncode == 0)
        assert "the next up or launch applies them again" in shaped.run("status").stdout
        check_laid_again(shaped, shaped.run("launch", "--no-verify", "--", short))
        assert delays(shaped) == [10.0] * 6
        assert changing.poll() is None
    finally:
        os.killpg(changing.pid, signal.SIGINT)
        _, said = changing.communicate(timeout=30)
    assert "this is a bug" not in said, said
    shaped.run("up")  # the change lost its nodes, so it may not have undone itself
    assert delays(shaped) == [10.0] * 6
    assert list(shaped.state_dir.glob("temporary-*")) == []


def test_a_launch_after_one_node_was_restarted_lays_its_links_again(shaped, short):
    docker("restart", shaped, "node2")
    done = shaped.run("launch", "--no-verify", "--", short)
    check_laid_again(shaped, done)
    assert "node2" in done.stderr


def test_links_that_a_daemon_leaves_when_it_dies_are_laid_again(shaped, short):
    shaped.exec("node2", "sh", "-c", "pkill -x delayer; tc qdisc del dev eth0 root")
    check_laid_again(shaped, shaped.run("up"))


def test_nodes_that_were_made_anew_behind_our_back_get_their_links_again(shaped, short):
    docker("kill", shaped, "node1", "node2", "node3")
    docker("rm", shaped, "node1", "node2", "node3")
    shaped.run("launch", "--no-verify", "--", short)
    assert all(is_shaped(shaped, node) for node in ("node1", "node2", "node3"))


def test_a_node_that_has_lost_its_network_is_made_anew(shaped):
    """Compose considers the node complete: `up` used to wait two minutes for it, in vain."""
    name = shaped.container("node2")
    network = f"{name.removesuffix('-node2')}_data"
    subprocess.run(["docker", "network", "disconnect", network, name], check=True)
    done = shaped.run("up")
    assert "node2: connected to no network; recreated" in done.stderr
    assert is_shaped(shaped, "node2")


def test_status_and_verify_say_that_links_are_gone(shaped):
    docker("restart", shaped, "node1", "node2", "node3")
    eventually(lambda: shaped.ssh("node3", "true").returncode == 0)
    said = shaped.run("status").stdout
    assert "node1, node2, node3: the links in force differ from those asked for" in said
    done = shaped.run("verify", check=1)
    assert "no longer in force" in done.stderr and "cluster.up" in done.stderr


def test_a_run_that_loses_its_links_on_the_way_is_not_done(shaped, tmp_path):
    script = tmp_path / "lose.py"
    script.write_text(
        "import os, subprocess\n"
        "if os.environ['RANK'] == '1':\n"
        "    subprocess.run('ssh node2 tc qdisc del dev eth0 root', shell=True, check=True)\n"
    )
    done = shaped.run("launch", "--json", "--no-verify", "--", script, check=1)
    assert "the ranks are done, but links were lost" in done.stderr
    summary = json.loads(done.stdout)
    assert "node2" in summary["links_lost"] and summary["links_lost"] in summary["failure"]


@pytest.mark.slow
def test_links_that_another_command_changes_during_a_run_are_told(shaped, tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import pathlib, sys, time\nend = time.monotonic() + 120\n"
        "while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < end: time.sleep(0.1)\n"
    )
    over = f"/tmp/{tmp_path.name}"
    launched = shaped.start("launch", "--json", "--allow-undecided", "--", script, over)
    eventually(lambda: shaped.exec("node3", "pgrep", "-f", "wait.py", check=False), 90)
    shaped.run("shape", "--force", "--link", "node1:node3", "--delay", "30")
    for node in ("node1", "node2", "node3"):
        shaped.exec(node, "touch", over)
    out, said = launched.communicate(timeout=90)
    assert launched.returncode == 0, said
    summary = json.loads(out)
    assert "other links are in force (node1, node3)" in summary["links_changed"]
    assert summary["links_lost"] == "" and summary["bounds"] is None
    report = (Path(summary["folder"]) / "report.html").read_text()
    assert "changed during the run" in report


def test_a_run_over_links_that_nobody_asked_for_says_so(unshaped, short):
    assert "the links are not shaped" in unshaped.run("launch", "--", short).stdout


def test_links_that_were_cleared_stay_so(shaped, short):
    shaped.run("shape", "--clear")
    docker("restart", shaped, "node1", "node2", "node3")
    done = shaped.run("launch", "--", short)
    assert "applying them again" not in done.stderr
    assert not is_shaped(shaped, "node1")


def test_links_of_before_there_was_a_record_are_adopted_and_never_lost_in_silence(shaped):
    record = Path(shaped.state_dir, "links.json")
    kept = json.loads(record.read_text())
    record.unlink()
    shaped.run("up")
    assert json.loads(record.read_text()) == kept
    record.unlink()
    docker("restart", shaped, "node1", "node2", "node3")
    for verb in ("up", "launch"):
        done = shaped.run(verb, check=1)
        assert "not on record" in done.stderr and "cluster.shape" in done.stderr
    shaped.run("shape", "--clear")
    assert json.loads(record.read_text()) == {}


def test_a_damaged_record_is_named(shaped, short):
    record = Path(shaped.state_dir, "links.json")
    keep = record.with_suffix(".keep")
    shutil.copy(record, keep)
    record.write_text("{")
    try:
        assert str(record) in shaped.run("launch", "--", short, check=1).stderr
    finally:
        keep.replace(record)
