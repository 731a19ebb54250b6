"""Every link is proved before it is used; a wrong link is caught by name."""

import json
import re

import pytest
from busy_host import Watch
from containers import TIMEOUT_S, last_run
from wrong_links import change_first_delay, multiply, slow_first_link


def test_jitter_and_loss_are_proved_too(shared, tmp_path):
    profile = tmp_path / "rough.yml"
    profile.write_text("rate_mbyte_s: 4\ndelay_ms: 40\njitter_pct: 20\nloss_pct: 2\ntcp: bbr\n")
    shared.run("shape", "--profile", str(profile))
    contract = shared.json("verify")
    for link in contract["links"]:
        assert link["measured"]["jitter_ms"] == pytest.approx(8, rel=0.25)
        assert 0 < link["measured"]["loss_pct"] < 5
    assert contract["holds"], contract["verdict"]


def shape_short(cluster, folder, *words):
    """Shape links that can be measured quickly, and again."""
    profile = folder / "short.yml"
    profile.write_text("rate_mbyte_s: 4\ndelay_ms: 20\n")
    cluster.run("shape", "--profile", profile, *words)


def check_broken(contract, wrong):
    """Check that a contract calls exactly the links in `wrong` broken, by the right words, however busy the host was.

    Args:
        contract: the document.
        wrong: {(src, dst): words of which at least one must be given as broken}.
    """
    found = ((verdict["link"], set(verdict["broken"])) for verdict in contract["links"])
    broken = {(link["src"], link["dst"]): words for link, words in found if words}
    caught = {pair: broken.get(pair, set()) & words for pair, words in wrong.items()}
    said = f"{contract['verdict']}; {'; '.join(contract['notes'])}"
    assert all(caught.values()), said
    others = {pair: words - wrong.get(pair, set()) for pair, words in broken.items()}
    assert not any(others.values()), said


def test_a_delay_made_wrong_behind_the_tools_back_is_caught_by_name(shared, make_wrong, tmp_path):
    shape_short(shared, tmp_path)
    make_wrong("delay")
    contract = shared.json("verify", check=1)
    # A round trip has two directions, and only one of them is wrong.
    there, back = ("node1", "node2"), ("node2", "node1")
    check_broken(contract, {there: {"delay", "rtt"}, back: {"rtt"}})


@pytest.mark.slow
@pytest.mark.parametrize("times", [0, 5], ids=["none", "five times as many"])
def test_losses_of_one_in_a_thousand_are_held_against_what_was_asked(
    shared, make_wrong, tmp_path, times
):
    profile = tmp_path / "rare.yml"
    profile.write_text("rate_mbyte_s: 8\ndelay_ms: 10\nloss_pct: 0.1\n")
    shared.run("shape", "--profile", profile)
    make_wrong(times)
    contract = shared.json("verify", check=1)
    check_broken(contract, {("node1", "node2"): {"loss"}})
    assert "too rare" not in " ".join(contract["notes"])


@pytest.mark.nightly
def test_no_link_of_sixteen_nodes_is_called_wrong(make_cluster):
    """Their bursts once kept the machine so busy that right queues seemed too small."""
    cluster = make_cluster("many")
    cluster.run("up", "--nodes", "16", "--profile", "mobile")
    contract = cluster.json("verify", check=None)
    check_broken(contract, {})
    assert all(link["measured"]["buffer_ms"] for link in contract["links"])


@pytest.mark.nightly
def test_where_tcp_would_take_too_long_datagrams_tell_every_link_and_catch_a_wrong_one(
    make_cluster, tmp_path
):
    """The method for big clusters, used on a small one by a short time budget."""
    cluster, profile = make_cluster("short"), tmp_path / "short.yml"
    profile.write_text("rate_mbyte_s: [6, 12]\ndelay_ms: [5, 10]\n")
    cluster.run("up", "--nodes", "5", "--profile", profile)
    with Watch() as watch:
        contract = cluster.json("verify", "--budget", "5")
    # A slow machine starts programs late; docs/LOG.md says how good the plan is.
    in_time = contract["seconds"] < 2 * contract["planned_s"]
    assert in_time or contract["measured_again"] or watch.limits()
    assert "TCP was tried on 5 of 20 links" in " ".join(contract["notes"])
    tried = [link for link in contract["links"] if "TCP" in link["speed_by"]]
    assert sorted(link["link"]["src"] for link in tried) == [f"node{n}" for n in range(1, 6)]
    for link in contract["links"]:
        assert "datagrams" in link["speed_by"]
        expected, measured = link["expected"], link["measured"]
        assert measured["rate_mbyte_s"] == pytest.approx(expected["rate_mbyte_s"], rel=0.05)
    (wrong,) = [
        link
        for link in contract["links"]
        if (link["link"]["src"], link["link"]["dst"]) == ("node1", "node2")
    ]
    assert wrong["speed_by"] == "by datagrams"
    slow_first_link(cluster, "node1", f"{wrong['expected']['rate_mbyte_s'] * 8 * 0.9:.2f}mbit")
    contract = cluster.json("verify", "--budget", "5", check=1)
    check_broken(contract, {("node1", "node2"): {"rate"}})


def test_a_rate_made_wrong_stops_the_launch_and_no_verify_goes_on(shared, make_wrong, tmp_path):
    shape_short(shared, tmp_path)
    make_wrong("rate")
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    done = shared.run("launch", "--json", "--", script, check=1)
    assert "nothing was started" in done.stderr
    assert re.search(r"node1 -> node2 \([^)]*goodput\)", done.stderr), done.stderr
    check_broken(json.loads(done.stdout), {("node1", "node2"): {"goodput", "rate"}})
    assert "| hello" not in done.stderr
    assert "hello" in shared.run("launch", "--no-verify", "--", script).stdout


def test_a_node_whose_wire_has_died_is_named(shared):
    shared.run("shape", "--profile", "mobile", "--wire", "nfqueue")
    shared.exec("node2", "pkill", "--signal", "KILL", "-x", "delayer")
    try:
        done = shared.run("verify", check=1)
        assert "the links of node2 are no longer in force" in done.stderr
        assert "python -m cluster.up" in done.stderr
    finally:
        shared.run("shape", "--clear")


@pytest.fixture
def make_wrong(shared):
    """Change node1's link to node2 behind the tool's back; restored after the test."""

    def make(wrong):
        if wrong == "rate":
            slow_first_link(shared, "node1", "24mbit")
        elif wrong == "delay":
            change_first_delay(shared, 1.1)
        else:
            multiply(shared.exec, "node1", "node2", loss_pct=wrong)

    yield make
    shared.run("shape", "--clear")


UPLINK = """\
base: full
nodes:
  node1: {uplink_mbyte_s: 3}
"""


def test_links_share_their_nodes_uplink_and_the_contract_proves_it(shared, tmp_path):
    profile, topology = tmp_path / "even.yml", tmp_path / "narrow.yml"
    profile.write_text("rate_mbyte_s: 2\ndelay_ms: 20\n")
    topology.write_text(UPLINK)
    shaped = shared.json("shape", "--profile", profile, "--topology", topology)
    assert shaped["uplinks"] == [{"node": "node1", "uplink_mbyte_s": 3}]
    contract = shared.json("verify")
    assert contract["holds"], contract["verdict"]
    (uplink,) = contract["uplinks"]
    assert uplink["asked_mbyte_s"] == 3
    assert uplink["measured_mbyte_s"] == pytest.approx(3, rel=0.05)  # not 4, the sum of both links
    # Each link by itself has its own rate.
    for link in contract["links"]:
        assert link["measured"]["goodput_mbyte_s"] == pytest.approx(2 * 1448 / 1514, rel=0.05)


def test_a_round_trip_under_load_is_measured_beside_the_idle_one(shared, tmp_path):
    """TCP small queues keep the sender's own queue of one flow short; it never exceeds the requested buffer."""
    profile = tmp_path / "deep.yml"
    profile.write_text("rate_mbyte_s: 1\ndelay_ms: 20\nbuffer_ms: 300\n")
    shared.run("shape", "--profile", profile)
    contract = shared.json("verify")
    assert contract["holds"], contract["verdict"]
    for link in contract["links"]:
        assert link["measured"]["rtt_ms"] < link["measured"]["loaded_rtt_ms"] < 40 + 300 * 1.1


@pytest.mark.slow
def test_messages_that_nobody_reads_do_not_stop_the_run(mobile, tmp_path):
    """As in `launch -- quick.py 2>&1 | head -1`: the contract's table is printed after the reader has gone."""
    script = tmp_path / "quick.py"
    script.write_text("import os\nopen(os.environ['GRADWIRE_RUN_DIR'] + '/done', 'w').close()\n")
    launched = mobile.start("launch", "--", script)
    launched.stderr.readline()
    launched.stderr.close()
    launched.stdout.close()
    if launched.wait(timeout=TIMEOUT_S) != 0:
        mobile.run("verify")  # names the host, if that was the reason
    assert launched.returncode == 0
    assert len(list(last_run(mobile, "quick").glob("files/*/done"))) == 3
