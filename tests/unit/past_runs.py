"""Run folders as a launch writes them, with the ranks' files, for tests that read them back or launch them again."""

import json

from books import line

from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run.job import Job
from cluster.run.program import Program
from cluster.run.rank_placement import place_ranks
from cluster.run.run_folder import write_config, write_links
from cluster.shaping.link_state import planned_link_state

PROGRAM = Program(
    "fedavg",
    ("python3", "-m", "node.train", "--strategy", "fedavg"),
    config={"strategy": "fedavg", "strategy_options": {"H": 20}, "steps": 40},
)


def write_run(
    folder, order=None, program=PROGRAM, limits=None, schedule=(), topology="full", size=3
):
    spec = ClusterSpec("lab", size, 0)
    order = order or tuple(node.name for node in spec.nodes)
    plans = link_plans(spec.nodes, make_link_spec("mobile", topology, 1, "nfqueue"))
    state = planned_link_state(plans)
    places = place_ranks(order)
    job = Job(spec, program, places, state, schedule, True, 10 * 2**30)
    (folder / "metrics").mkdir(parents=True)
    write_links(folder, state.links, places)
    write_config(folder, job.config(limits or {}))
    for rank, place in enumerate(places):
        kept = [
            line(
                "all_reduce",
                {(rank - 1) % size: 6_399_371},
                at=110.0 + 10 * n,
                size=4_799_528,
                messages=8,
                step=n + 1,
            )
            for n in range(5)
        ]
        events = [
            {"event": "start", "rank": rank, "time": 100.0 + rank},
            {"event": "end", "rank": rank, "time": 160.0 + rank, "seconds": {}},
        ]
        for name, rows in ((place.name, events), (f"{place.name}.collectives", kept)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "metrics" / f"{name}.jsonl").write_text(text)
    return folder
