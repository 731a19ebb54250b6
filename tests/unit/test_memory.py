"""What nodes send and leave takes the host's memory in proportion to its bytes, however it is made."""

import itertools
import json
import tracemalloc
from dataclasses import replace

import pytest

from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.metrics import last_lines
from cluster.accounting.metrics_table import metric_rows
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.links.regions import RegionPair
from cluster.links.topology_file import parse_topology
from cluster.links.underlay import HostPath, Underlay
from cluster.reporting.read_run import read_run
from protocol.link import ACCESS_LIMITS, LIMITS
from protocol.node_plan import read_plan
from protocol.reader import MOST_ITEMS, FormatError, document

MOST_TIMES = 6  # as cluster/accounting/metrics.py promises
NODES = [f"node{n}" for n in range(1, 200)]
SMALL = ",".join(['{"":0}'] * 10_000)
TABLE = ",".join(f'"{n:x}":0' for n in range(10_000))
FIGURES = f'{{"mean":0,"median":0,"p95":0,"max":0,{TABLE}}}'
STEP = '{"event":"step","rank":0,"time":1000,"step":1,"sent_bytes":0}'
LINES = {
    "configuration": f'{{"event":"start","rank":0,"time":1000,"config":{{"a":[{SMALL}]}}}}',
    "seconds": f'{{"event":"start","rank":0,"time":1000,"seconds":{{{TABLE}}}}}',
    "end": f'{{"event":"end","rank":0,"time":1000,"sent_bytes":{{{TABLE}}}}}',
    "experience": f'{{"event":"experience","rank":0,"time":1000,"step":1,"staleness_s":{FIGURES}}}',
    "start": "\n".join(['{"event":"start","rank":0,"time":1000,"seconds":{"total":1}}'] * 2000),
}


def times(action, size):
    """Return how many times the size of a file its reading takes at most."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("reader", [read_run, metric_rows])
def test_metrics_take_memory_by_their_bytes(tmp_path, reader, line):
    """A list of small objects takes 26 times its bytes, a table of short names 12 times."""
    path = tmp_path / "metrics" / "node1.jsonl"
    path.parent.mkdir()
    path.write_text(f"{STEP}\n" + f"{line}\n" * 15)
    assert times(lambda: reader(tmp_path), path.stat().st_size) < MOST_TIMES


def test_of_the_last_start_its_configuration_is_not_kept_but_whether_it_goes_on(tmp_path):
    path = tmp_path / "node1.jsonl"
    for config, kept in (
        ({"resume": "runs/x", "a": [{}]}, {"resume": "runs/x"}),
        ({"resume": [{}]}, {}),
    ):
        path.write_text(
            json.dumps({"event": "start", "rank": 0, "time": 1, "config": config}) + "\n"
        )
        assert last_lines(path).start.config == kept


def test_sources_are_ranks_that_are_each_there_once(tmp_path):
    path = tmp_path / "metrics" / "node1.collectives.jsonl"
    path.parent.mkdir()
    line = {"time": 1.0, "step": 1, "kind": "exchange", "purpose": "train", "bytes": 8}
    line |= {"messages": 1, "to": {"0": 8}, "done_s": 1.0, "waited_s": 0, "hidden": False}
    lines = [json.dumps(line | {"sources": [0] * count}) for count in (1, 20_000)]
    path.write_text("\n".join([*lines, *lines[1:] * 5]) + "\n")
    assert times(lambda: read_collectives(tmp_path, ["node1"]), path.stat().st_size) < MOST_TIMES
    assert [one.parts[0].sources for one in read_collectives(tmp_path, ["node1"])] == [(0,)]


WAN = make_link_spec("wan", "full", 1, "auto")
PLAN = document(link_plans(ClusterSpec("lab", 3).nodes, WAN)["node1"])


def test_an_origin_has_its_own_keys_alone_and_a_bounded_number_of_values():
    """The host keeps that of every node, and uses only one."""
    half = [0] * (MOST_ITEMS // 2)
    for more, words in (
        ({"more": 1}, r"^origin\.more: unknown key"),
        ({"profile": half, "topology": half}, "^origin: more than 600000 values"),
        ([], "^origin: expected an object"),
    ):
        with pytest.raises(FormatError, match=words):
            read_plan(PLAN | {"origin": WAN.origin() | more if more else more})


def of_every_link():
    """A topology of 199 nodes that states all values of every link."""
    values = {key: low for key, (low, _) in LIMITS.items()}
    links = [{"ends": list(pair), **values} for pair in itertools.combinations(NODES, 2)]
    access = {key: low for key, (low, _) in ACCESS_LIMITS.items()}
    nodes = dict.fromkeys(NODES, values | access)
    topology = parse_topology("mine", {"links": links, "nodes": nodes}, "mine.yml")
    return replace(WAN, topology=topology)


def of_every_region():
    """A profile in which 199 nodes are in 199 regions, on 199 hosts."""
    between = tuple(RegionPair(pair, 5.0, 5.0) for pair in itertools.combinations(NODES, 2))
    profile = replace(WAN.profile, regions=tuple(NODES), between=between)
    paths = dict.fromkeys(itertools.permutations(NODES, 2), HostPath(1.0, 2.0))
    underlay = Underlay(dict(zip(NODES, NODES, strict=True)), paths)
    return replace(WAN, profile=profile, underlay=underlay)


@pytest.mark.parametrize("make", [of_every_link, of_every_region])
def test_the_largest_origins_fit(make):
    origin = make().origin()
    assert read_plan(PLAN | {"origin": origin}).origin == origin
