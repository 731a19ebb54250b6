"""The title of a run, and the facts needed to reproduce it. Pure."""

import json
import shlex
from collections.abc import Mapping, Sequence

from cluster.reporting.run_data import Rank
from cluster.reporting.values import Record, number, record, records, word, words

MOST_FACT = 400
NEEDED = ("wire", "image id", "gradwire", "torch", "Python on the nodes")
"""Facts needed to reproduce a run that older folders lack; a missing one is shown as a dash."""


def title_of(config: Record, ranks: Sequence[Rank]) -> str:
    """Return `3 nodes trained fashion-mnist with fedavg over mobile links`, as far as that is known."""
    nodes = len({rank.node for rank in ranks})
    who = f"{nodes} node{'' if nodes == 1 else 's'}"
    if ranks and len(ranks) > nodes:
        who += f", {len(ranks)} ranks,"
    profile = word(record(record(config.get("shaping")).get("profile")).get("name"), 64)
    over = f"over {profile} links" if profile else "over links that were not shaped"
    return f"{who} {_what(config)} {over}" if ranks else f"a run {over}"


def _what(config: Record) -> str:
    training = record(config.get("training"))
    task = word(training.get("task")).rpartition("/")[2]  # a user's own task is a file
    strategy = word(training.get("strategy")).rpartition("/")[2]
    if task:
        with_what = f" with {strategy}" if strategy not in ("", "none") else ""
        return f"trained {task}{with_what}"
    return f"ran {_program(config)}".rstrip()


def _program(config: Record) -> str:
    """Return the script of a user's own program, without the Python before it."""
    argv = [part for part in words(record(config.get("program")).get("argv")) if part]
    rest = [part for part in argv if not part.startswith("python")]
    if rest[:1] == ["-m"]:
        rest = rest[1:]
    return rest[0].rpartition("/")[2] if rest else ""


def command_of(config: Record) -> str:
    """Return the command as the user typed it, joined if the folder has a list; '' if it is unknown."""
    command = config.get("command")
    if isinstance(command, str):
        return word(command, 2000)
    if isinstance(command, list):
        return word(shlex.join(words(command)), 2000)
    return ""


def facts_of(config: Record, contract: Record) -> dict[str, str]:
    """Return all facts that decide what a run does, as name -> value, as far as its folder has them."""
    training, shaping = record(config.get("training")), record(config.get("shaping"))
    profile, cluster = record(shaping.get("profile")), record(config.get("cluster"))
    versions = record(config.get("versions"))
    found = {
        "program": " ".join(words(record(config.get("program")).get("argv"))),
        "nodes": _said(cluster.get("nodes")),
        "on hosts": _node_hosts(record(config.get("node_hosts"))),
        "ranks a node": _said(config.get("nproc_per_node")),
        "links": _profile(profile),
        "topology": _topology(shaping.get("topology")),
        "seed of the links": _said(shaping.get("seed")),
        "seed of the training": _said(training.get("seed")),
        "strategy": _with_options(training, "strategy"),
        "task": _with_options(training, "task"),
        "wire": _said(shaping.get("wire")),
        "congestion control": _said(shaping.get("tcp")),
        "limits": _said(config.get("limits") or None),
        "schedule": _count_of(config.get("schedule"), "event"),
        "image": _said(config.get("image") or cluster.get("image")),
        "image id": _said(config.get("image_id")),
        "gradwire": _gradwire(versions),
        "torch": _said(versions.get("torch")),
        "Python on the nodes": _said(versions.get("python")),
        "host": _host(record(config.get("host"))),
        **_kernel(records(config.get("settings")) or records(contract.get("settings"))),
    }
    asked = NEEDED if config else ()
    return {name: value or "–" for name, value in found.items() if value or name in asked}


def _gradwire(versions: Record) -> str:
    commit = _said(versions.get("commit"))
    return f"{_said(versions.get('gradwire'))}{commit and f' (commit {commit})'}".strip()


def _node_hosts(hosts: Record) -> str:
    """Return `west: node1, node3; east: node2`."""
    nodes: dict[str, list[str]] = {}
    for node, host in hosts.items():
        nodes.setdefault(_said(host), []).append(word(node, 16))
    return word("; ".join(f"{host}: {', '.join(its)}" for host, its in nodes.items()), MOST_FACT)


def _said(value: object) -> str:
    if value is None or value == "":
        return ""
    return word(value if isinstance(value, str) else json.dumps(value, default=str), MOST_FACT)


def _profile(profile: Record) -> str:
    ranges = ("rate_mbyte_s", "delay_ms", "jitter_pct", "loss_pct")
    said = [f"{key} {_range(profile.get(key))}" for key in ranges if _range(profile.get(key))]
    return ", ".join([word(profile.get("name"), 64), *said]) if profile else ""


def _range(value: object) -> str:
    """Return `1–10`; '' if the value is no range, or only 0."""
    ends = [number(one) for one in value] if isinstance(value, list) else [number(value)]
    known = [one for one in ends if one is not None]
    if not any(known):
        return ""
    return "–".join(dict.fromkeys(f"{one:g}" for one in known))


def _topology(value: object) -> str:
    return word(record(value).get("name")) if isinstance(value, Mapping) else _said(value)


def _with_options(training: Record, which: str) -> str:
    options = record(training.get(f"{which}_options"))
    said = " ".join(f"{word(key, 64)}={_said(value)}" for key, value in options.items())
    return word(f"{_said(training.get(which))} {said}".strip(), MOST_FACT)


def _count_of(value: object, what: str) -> str:
    found = len(value) if isinstance(value, list) else 0
    return f"{found} {what}{'' if found == 1 else 's'}" if found else ""


def _host(host: Record) -> str:
    python = _said(host.get("python"))
    return ", ".join(
        part for part in (_said(host.get("system")), python and f"Python {python}") if part
    )


def _kernel(groups: Sequence[Record]) -> dict[str, str]:
    """Return the kernel settings, by groups of nodes that share them: docs/run-folder.md, `settings`."""
    facts = {}
    for group in groups[:4]:
        nodes = words(group.get("nodes"))
        of = (
            f" ({', '.join(nodes[:6])}{', …' if len(nodes) > 6 else ''})" if len(groups) > 1 else ""
        )
        said = [
            f"{word(key, 64)} {_said(value)}"
            for key, value in group.items()
            if key != "nodes" and value != ""
        ]
        facts[f"kernel settings{of}"] = word(", ".join(said), 2 * MOST_FACT)
    return facts
