"""The conformance table: its grids are links of four nodes, and each link's measurement is kept."""

import csv
import importlib.util

import pytest

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.links.link import draw_links
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology

spec = importlib.util.spec_from_file_location("table", PROJECT_DIR / "tests" / "conformance.py")
assert spec and spec.loader
conformance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conformance)


def links_of(case):
    words = dict(zip(case.shape[::2], case.shape[1::2], strict=True))
    profile, topology = load_profile(words["--profile"]), load_topology(words["--topology"])
    return draw_links(profile, topology, ClusterSpec(size=4).nodes, seed=1)


@pytest.mark.parametrize(
    "case", conformance.grid_cases(conformance.GRIDS), ids=lambda c: c.topology
)
def test_a_grid_joins_every_pair_of_four_nodes(case):
    assert len(links_of(case)) == 12
    assert case.verify == ("--full",)


@pytest.mark.parametrize(
    ("grid", "field", "lowest", "highest"),
    [
        ("delays", "delay_ms", 1, 500),
        ("rates", "rate_mbyte_s", 0.1, 20),
        ("fast", "rate_mbyte_s", 40, 250),
        ("jitter", "jitter_ms", 1, 50),  # of a delay of 100 ms
        ("losses", "loss_pct", 0.1, 10),
        ("bursts", "loss_burst", 2, 10),
    ],
)
def test_grids_reach_from_end_to_end(grid, field, lowest, highest):
    (case,) = conformance.grid_cases([grid])
    values = [getattr(link, field) for link in links_of(case)]
    assert (min(values), max(values)) == (lowest, highest)


def test_a_grid_may_be_of_uniform_jitter():
    (case,) = conformance.grid_cases(["uniform-jitter"])
    assert {link.distribution for link in links_of(case)} == {"uniform"}


def measured_link(src, rtt_ms, **more):
    asked = dict.fromkeys(conformance.ASKED, 0.0)
    found = {"rtt_ms": rtt_ms, "jitter_ms": 0.0, "loss_pct": 0.0}
    found |= {"goodput_mbyte_s": 4.7, "rate_mbyte_s": None}
    expected = found | {"rtt_ms": 40.0, "goodput_mbyte_s": 4.8, "rate_mbyte_s": 5.0}
    ends = {"src": src, "dst": "node2"}
    row = {"link": asked | ends, "expected": expected, "measured": found}
    return row | {"clipped": False, "broken": [], "undecided": []} | more


def test_every_link_and_every_path_is_kept(tmp_path):
    contract = {
        "holds": False,
        "broken": True,
        "measured_again": 1,
        "seconds": 12.3,
        "links": [measured_link("node1", 40.2), measured_link("node3", 44.0, broken=["rtt"])],
        "paths": [measured_link("node4", 39.9, via=["node1"])],
    }
    case = conformance.Case("wan", "star", (), ())
    conformance.save(tmp_path, [(case, contract)], "here")
    rows = list(csv.DictReader((tmp_path / "links.csv").read_text().splitlines()))
    assert [(row["src"], row["via"], row["broken"]) for row in rows] == [
        ("node1", "", ""),
        ("node3", "", "rtt"),
        ("node4", "node1", ""),
    ]
    assert (rows[1]["expected_rtt_ms"], rows[1]["measured_rtt_ms"]) == ("40.0", "44.0")
    assert rows[0]["measured_rate_mbyte_s"] == ""
    table = (tmp_path / "table.md").read_text()
    assert "| wan | star | NO | +10.00 % | - | - | -2.08 % | 1 | 12 |" in table
    assert (tmp_path / "wan-star.json").exists()


@pytest.mark.parametrize(
    ("holds", "broken", "words"),
    [(True, False, "yes"), (False, False, "undecided"), (False, True, "NO")],
)
def test_what_a_busy_host_left_undecided_is_not_called_wrong(holds, broken, words):
    contract = {"holds": holds, "broken": broken, "measured_again": 0, "seconds": 1.0}
    case = conformance.Case("wan", "star", (), ())
    row = conformance.row_of(
        case, contract | {"links": [measured_link("node1", 40.2)], "paths": []}
    )
    assert row[2] == words
    link = measured_link("node1", 44.0, undecided=["rtt", "jitter"])
    (kept,) = conformance.link_rows(case, {"links": [link], "paths": []})
    assert dict(zip(conformance.links_header(), kept, strict=True))["undecided"] == "rtt jitter"


@pytest.mark.parametrize(
    ("words", "profiles", "grids"),
    [((), 9, 8), (("--profiles", "wan"), 1, 0), (("--grids", "losses", "rates"), 0, 2)],
)
def test_who_names_something_gets_that_alone(words, profiles, grids):
    args = conformance.parse(words)
    assert (len(args.profiles), len(args.grids)) == (profiles, grids)
