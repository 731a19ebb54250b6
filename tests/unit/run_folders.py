"""Fake run folders: what a launch would have left, in any size, for reports to read."""

import json
import random

import yaml
from books import line

BEGAN = 1_700_000_000.0
STEP_S = 0.5
MODEL_BYTES = 4_799_528


def make_run(
    folder, *, nodes=3, steps=20, every=5, contract=True, program=False, events=(), seen=True
):
    """Write the folder of a training with so many nodes and steps, and a collective every `every` steps.

    `program`: a program of the user's, which leaves no metrics; `seen`: whether its links were sampled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"node{n + 1}" for n in range(nodes)]
    (folder / "logs").mkdir(exist_ok=True)
    for name in names:
        (folder / "logs" / f"{name}.log").write_text(f"{name} says hello\n")
    (folder / "run.yml").write_text(yaml.safe_dump(config(nodes, program=program)))
    links = [link(a, b) for a in names for b in names if a != b]
    write_json(folder / "links.json", links)
    if contract:
        write_json(folder / "contract.json", contract_of(links))
    if events:
        write_lines(folder / "events.jsonl", events)
    if not program:
        write_metrics(folder, names, steps, every)
    if seen and not program:
        write_looks(folder, links, seconds=steps * STEP_S + (steps // every) * 2.0, every=every)
    write_json(folder / "summary.json", summary(folder.name, names, links, steps, program=program))
    return folder


def config(nodes, *, program):
    training = {"task": "fashion-mnist", "strategy": "fedavg", "seed": 1, "steps": 20}
    argv = ["python3", "train.py"] if program else ["python3", "-m", "node.train"]
    return {
        "command": "python -m cluster.launch --profile mobile",
        "cluster": {"nodes": nodes},
        "shaping": {"profile": {"name": "mobile", "rate_mbyte_s": [1.0, 10.0]}, "topology": "full"},
        "program": {"argv": argv, "folder": ""},
        **({} if program else {"training": training}),
    }


def link(src, dst):
    values = {"rate_mbyte_s": 5.0, "delay_ms": 80.0, "jitter_ms": 0.0, "loss_pct": 0.0}
    return {"src": src, "dst": dst, **values}


def contract_of(links):
    expected = {"goodput_mbyte_s": 4.78, "rtt_ms": 160.0}
    measured = {"goodput_mbyte_s": 4.75, "rtt_ms": 160.2}
    rows = [
        {"link": one, "expected": expected, "measured": measured, "broken": [], "undecided": []}
        for one in links
    ]
    return {"holds": True, "broken": False, "decided": True, "links": rows, "settings": []}


def write_metrics(folder, names, steps, every):
    (folder / "metrics").mkdir(exist_ok=True)
    noise = random.Random(1)
    for rank, name in enumerate(names):
        lines = [{"event": "start", "rank": rank, "time": BEGAN, "seconds": {"total": 2.0}}]
        books, at = [], BEGAN
        for step in range(1, steps + 1):
            came = at + STEP_S + 0.05 * noise.random()
            meets = step % every == 0
            at = BEGAN + step * STEP_S + (step // every) * 2.0 + 0.1
            values = {"loss": 2 / step + noise.random(), "compute_s": STEP_S, "sent_bytes": 0}
            values |= {"strategy_s": 0.02}
            if meets:
                peer = {(rank + 1) % len(names): MODEL_BYTES}
                took = {"at": came, "done_s": at - came, "step": step, "size": MODEL_BYTES}
                books.append(line("all_reduce", peer, **took))
                values |= {"comm_s": at - came, "sent_bytes": MODEL_BYTES}
            lines.append({"event": "step", "rank": rank, "step": step, "time": at} | values)
        if rank == 0:
            for step in (steps // 2, steps):
                tested = {"test_accuracy": 0.5 + step / steps / 4, "eval_s": 0.3}
                lines.append({"event": "eval", "rank": 0, "step": step, "time": at + step} | tested)
        write_lines(folder / "metrics" / f"{name}.jsonl", lines)
        write_lines(folder / "metrics" / f"{name}.collectives.jsonl", books)


def write_looks(folder, links, *, seconds, every):
    """Write one look per second: a link to the next node carries 3 MB/s of its 5 now and then, other links nothing."""
    rows = ["time_s,link,bytes,backlog,drops,rate_mbyte_s"]
    ring = [one for one in links if int(one["dst"][4:]) == int(one["src"][4:]) + 1]
    for one in ring:
        sent = 0
        for second in range(int(seconds) + 1):
            is_busy = second % every > every // 2
            sent += 3_000_000 if is_busy else 0
            figures = (sent, 10_000 if is_busy else 0, second // 10, one["rate_mbyte_s"])
            name = f"{one['src']}->{one['dst']}"
            rows.append(f"{BEGAN + second:.3f},{name},{','.join(map(str, figures))}")
    (folder / "links.csv").write_text("\n".join(rows) + "\n")


def critical_path(names):
    link = {"seconds": 6.0, "delay_s": 1.0, "bytes_s": 5.0, "window_s": 0.0}
    return {
        "wall_s": 19.0,
        "ranks": {names[0]: {"compute": 10.0, "eval": 0.3, "data": 1.7}},
        "links": {f"{names[0]}->{names[-1]}": link},
        "not_known_s": 1.0,
    }


def summary(run, names, links, steps, *, program):
    carried = {f"{one['src']}->{one['dst']}": 1_000_000 * i for i, one in enumerate(links)}
    seconds = {
        "startup": 2.0,
        "compute": 10.0,
        "strategy": 0.7,
        "transfer": 8.0,
        "waiting": 1.0,
        "eval": 0.3,
    }
    seconds |= {"total": sum(seconds.values())}
    parts = {"skew": 1.0, "distance": 2.0, "bytes": 4.0, "sharing": 0.0, "algorithm": 1.5}
    parts |= {"window": 1.0, "unexplained": -0.5}
    row = {"kind": "all_reduce", "purpose": "train", "bytes": MODEL_BYTES, "count": 4}
    loop = {"ratio": 1.001, "off": []}
    known = {
        "tested": {"test_accuracy": 0.75},
        "final_loss": 0.4,
        "steps": steps,
        "seconds": dict.fromkeys(names, seconds),
        "collectives": [
            row | {"seconds": 2.0, "gloo_bound_s": 1.5, "links_bound_s": 0.9, "ratio": 1.33}
        ],
        "attribution": {"seconds": parts, "collectives": [row | {"seconds": parts}]},
        "critical_path": critical_path(names),
        "what_if": [{"what": "rate", "carrier": "node1->node2", "saves_s": 3.5}],
        "causes": [
            {
                "cause": "slow_link",
                "of": "node1->node2",
                "seconds": 3.0,
                "factor": 2.0,
                "words": "node1->node2 takes 2.00 times as long per byte as the median link",
            },
            {
                "cause": "evaluation",
                "of": "node1",
                "seconds": 1.0,
                "factor": None,
                "words": "node1 tests while its peers wait",
            },
        ],
        "bounds": "measured",
    }
    return {
        "run": run,
        "status": "done",
        "wall_s": 21.3,
        "exit_codes": dict.fromkeys(names, 0),
        "bytes": {
            "total": sum(carried.values()),
            "links": carried,
            "loop": None if program else loop,
        },
        "host": {"limits": []},
        "verified": True,
        **({} if program else known),
    }


def change_summary(folder, **values):
    """Change values of the run's summary."""
    found = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", found | values)


def write_json(path, document):
    path.write_text(json.dumps(document))


def write_lines(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
