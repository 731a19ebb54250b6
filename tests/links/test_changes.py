"""Changes of single links on a running cluster, permanent and for a while."""

import signal
import time

from containers import TIMEOUT_S, eventually
from test_links import check_round_trip, find


def delays(cluster):
    links = cluster.json("status")["links"]
    return {(link["src"], link["dst"]): link["delay_ms"] for link in links}


def test_a_link_is_changed_and_stays_so_over_a_launch(shared):
    before = shared.json("shape", "--profile", "wan")["links"]
    asked_ms = find(before, "node2", "node1")["delay_ms"] + 80
    changed = shared.json("shape", "--link", "node1:node2", "--delay", "80")["links"]
    assert find(changed, "node1", "node2")["delay_ms"] == 80
    check_round_trip(shared, "node1", "node2", asked_ms, max(0.5, 0.01 * asked_ms))
    assert [link for link in changed if link not in before] == [find(changed, "node1", "node2")]
    shared.run("up")  # as `launch` does: a changed link stays changed
    assert delays(shared)["node1", "node2"] == 80
    shared.run("up", "--profile", "wan")
    assert delays(shared)["node1", "node2"] == find(before, "node1", "node2")["delay_ms"]


def test_a_link_that_is_cut_for_a_while_heals(shared):
    shared.run("shape", "--profile", "wan")
    words = ("--link", "node1:node2", "--both", "--loss", "100", "--for", "4s")
    cutting = shared.start("shape", *words)
    ping = ("ping", "-q", "-c", "3", "-i", "0.2", "-W", "1", "node2")
    eventually(lambda: "100% packet loss" in shared.exec("node1", *ping, check=False))
    _, stderr = cutting.communicate(timeout=TIMEOUT_S)
    assert cutting.returncode == 0, stderr
    assert " 0% packet loss" in shared.exec("node1", *ping)


def test_an_interrupted_change_is_taken_back(shared):
    before = shared.json("shape", "--profile", "wan")["links"]
    changing = shared.start("shape", "--link", "node1:node3", "--delay", "90", "--for", "10m")
    eventually(lambda: delays(shared)["node1", "node3"] == 90)
    time.sleep(0.5)
    changing.send_signal(signal.SIGINT)
    _, stderr = changing.communicate(timeout=TIMEOUT_S)
    assert changing.returncode == 130, stderr
    assert shared.json("status")["links"] == before


def test_what_cannot_be_changes_nothing(shared):
    before = shared.json("shape", "--profile", "wan", "--topology", "star")["links"]
    done = shared.run("shape", "--link", "node2:node3", "--delay", "80", check=2)
    assert "did you mean 'node2:node1'" in done.stderr
    shared.run("shape", "--delay", "80", check=2)
    shared.run("shape", "--link", "node1:node2", "--delay", "80", "--for", "soon", check=2)
    assert shared.json("status")["links"] == before
