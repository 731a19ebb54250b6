"""Every link is proved before it is used; a wrong one is caught by name."""

import json

import pytest


def test_jitter_and_loss_are_proved_too(shared, tmp_path):
    profile = tmp_path / "rough.yml"
    profile.write_text("rate_mbyte_s: 4\ndelay_ms: 40\njitter_pct: 20\nloss_pct: 2\ntcp: bbr\n")
    shared.run("shape", "--profile", str(profile))
    contract = shared.json("verify")
    for link in contract["links"]:
        assert link["measured"]["jitter_ms"] == pytest.approx(8, rel=0.25)
        assert 0 < link["measured"]["loss_pct"] < 5
    assert contract["holds"], contract["verdict"]


def shape_short(cluster, folder):
    """Links that are quickly measured, again and again."""
    profile = folder / "short.yml"
    profile.write_text("rate_mbyte_s: 4\ndelay_ms: 20\n")
    cluster.run("shape", "--profile", profile)


def broken_links(contract):
    """What is wrong with each link, by (src, dst)."""
    found = ((verdict["link"], verdict["broken"]) for verdict in contract["links"])
    return {(link["src"], link["dst"]): broken for link, broken in found if broken}


def test_a_delay_made_wrong_behind_the_tools_back_is_caught_by_name(shared, make_wrong, tmp_path):
    shape_short(shared, tmp_path)
    make_wrong("delay")
    broken = broken_links(shared.json("verify", check=1))
    # A round trip has two directions.
    assert set(broken) == {("node1", "node2"), ("node2", "node1")}
    assert all("rtt" in what for what in broken.values())


def test_where_tcp_would_take_too_long_datagrams_tell_every_link_and_catch_a_wrong_one(
    make_cluster, tmp_path
):
    """The way of big clusters, on a small one whose time is short."""
    cluster, profile = make_cluster("short"), tmp_path / "short.yml"
    profile.write_text("rate_mbyte_s: [6, 12]\ndelay_ms: [5, 10]\n")
    cluster.run("up", "--nodes", "5", "--profile", profile)
    contract = cluster.json("verify", "--budget", "5")
    assert contract["holds"], contract["verdict"]
    assert "TCP was tried on 5 of 20 links" in " ".join(contract["notes"])
    # A slow machine starts programs late; what the plan is worth is in docs/LOG.md.
    assert contract["seconds"] < 2 * contract["planned_s"] or contract["measured_again"]
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
    assert broken_links(contract) == {("node1", "node2"): ["rate"]}


def test_a_rate_made_wrong_stops_the_launch_and_no_verify_goes_on(shared, make_wrong, tmp_path):
    shape_short(shared, tmp_path)
    make_wrong("rate")
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    done = shared.run("launch", "--json", "--", script, check=1)
    assert "nothing was started" in done.stderr
    assert "node1 -> node2 (goodput)" in done.stderr
    assert broken_links(json.loads(done.stdout)) == {("node1", "node2"): ["goodput"]}
    assert "| hello" not in done.stderr
    assert "hello" in shared.run("launch", "--no-verify", "--", script).stdout


def test_a_node_whose_wire_has_died_is_named(shared):
    shared.run("shape", "--profile", "mobile", "--wire", "nfqueue")
    shared.exec("node2", "pkill", "--signal", "KILL", "-x", "delayer")
    try:
        done = shared.run("verify", check=1)
        assert "node2" in done.stderr
        assert "python -m cluster.shape" in done.stderr
    finally:
        shared.run("shape", "--clear")


# Ten per cent more delay on what comes from node1, told to the wire itself.
TEN_PER_CENT_MORE = """
from node.wire import nfqueue, rules, state
shape = state.load().shape
request = nfqueue.request_of(shape)
queues, wrong = request["queues"], rules.INCOMING + shape.slots["node1"]
queues[wrong] = queues[wrong]._replace(delay_s=queues[wrong].delay_s * 1.1)
assert nfqueue._ask(request)["error"] == ""
"""


@pytest.fixture
def make_wrong(shared):
    """Change node1's link to node2 with tc, so that the tool does not know; undone afterwards."""

    def make(wrong):
        if wrong == "rate":
            slow_first_link(shared, "node1", "24mbit")
        else:
            shared.exec("node2", "python3", "-c", TEN_PER_CENT_MORE)

    yield make
    shared.run("shape", "--clear")


def slow_first_link(cluster, node, rate):
    """Change a node's link to the first of its peers with tc, so that the tool does not know."""
    classes = cluster.exec(node, "tc", "class", "show", "dev", "eth0")
    leaf = next(line.split()[2] for line in classes.splitlines() if "leaf" in line)
    cluster.exec(
        *(node, "tc", "class", "change", "dev", "eth0", "classid", leaf),
        *("htb", "rate", rate, "ceil", rate),
    )


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
    assert uplink["measured_mbyte_s"] == pytest.approx(3, rel=0.05)  # and not the 4 of both links
    # Each link by itself has its own rate.
    for link in contract["links"]:
        assert link["measured"]["goodput_mbyte_s"] == pytest.approx(2 * 1448 / 1514, rel=0.05)


def test_a_round_trip_under_load_is_measured_beside_the_idle_one(shared, tmp_path):
    """One flow's queue stays short, by its own kernel's will (TCP small queues), and never exceeds what was asked."""
    profile = tmp_path / "deep.yml"
    profile.write_text("rate_mbyte_s: 1\ndelay_ms: 20\nbuffer_ms: 300\n")
    shared.run("shape", "--profile", profile)
    contract = shared.json("verify")
    assert contract["holds"], contract["verdict"]
    for link in contract["links"]:
        assert link["measured"]["rtt_ms"] < link["measured"]["loaded_rtt_ms"] < 40 + 300 * 1.1
