"""Pairs without a link: packets are routed through other nodes, with the delay of every link on their path."""

import pytest
from test_links import check_round_trip, find

LINE = """\
links:
  - {ends: [node1, node2], delay_ms: 20, rate_mbyte_s: 4}
  - {ends: [node2, node3], delay_ms: 30, rate_mbyte_s: 2}
"""


def test_a_star_carries_everything_through_its_middle(shared):
    links = shared.json("shape", "--profile", "mobile", "--topology", "star")["links"]
    assert len(links) == 4
    asked_ms = sum(
        link["delay_ms"] for link in links
    )  # from node2 to node3 and back: every link once
    check_round_trip(shared, "node2", "node3", asked_ms, max(0.5, 0.01 * asked_ms))
    assert " via 10.77." in shared.exec("node2", "ip", "route", "get", address(shared, "node3"))
    hops = shared.exec("node2", "ping", "-c", "1", "-W", "5", "node3")
    assert "ttl=63" in hops  # one router on the way
    assert "IcmpOutRedirects                0" in shared.exec(
        "node1", "nstat", "-az", "IcmpOutRedirects"
    )
    direct_ms = (
        find(links, "node1", "node2")["delay_ms"] + find(links, "node2", "node1")["delay_ms"]
    )
    check_round_trip(shared, "node1", "node2", direct_ms, max(0.5, 0.01 * direct_ms))


@pytest.mark.slow
def test_the_contract_covers_pairs_without_a_link(shared, tmp_path):
    line = tmp_path / "line.yml"
    line.write_text(LINE)
    shared.run("shape", "--profile", "mobile", "--topology", line)
    contract = shared.json("verify")
    assert contract["holds"], contract
    assert len(contract["links"]) == 4
    via = {(p["link"]["src"], p["link"]["dst"]): p["via"] for p in contract["paths"]}
    assert via == {("node1", "node3"): ["node2"], ("node3", "node1"): ["node2"]}
    assert [p["expected"]["rtt_ms"] for p in contract["paths"]] == [100, 100]
    assert shared.json("status")["topology"] == "line"


def test_a_run_works_over_a_star_and_full_links_come_back(shared):
    script = "examples/all_reduce.py"
    words = ("--profile", "wan", "--topology", "star", "--no-verify")
    summary = shared.json("launch", *words, "--", script, "--mbyte", "0.1")
    assert summary["status"] == "done"
    assert summary["bytes"]["expected"] is None  # links carry the same bytes more than once
    assert set(summary["bytes"]["links"]) == {
        "node1->node2",
        "node2->node1",
        "node1->node3",
        "node3->node1",
    }
    shared.run("shape", "--profile", "wan")
    route = shared.exec("node2", "ip", "route", "get", address(shared, "node3"))
    assert " via " not in route


def address(cluster, node):
    return next(n["address"] for n in cluster.json("status")["nodes"] if n["name"] == node)
