"""What is up: the nodes and their links, as the engine and the nodes themselves tell.

    python -m cluster.status
    python -m cluster.status --name second --json

The table of a big cluster ends after ninety links; --json has all of them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from cluster.api import Cluster
from cluster.base.console import Console, print_table
from cluster.base.errors import NodeError
from cluster.base.spec import name_flag
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.engine.resources import Limit, format_bytes
from cluster.links.profiles import IMPAIRMENT_WORDS, describe_impairments
from cluster.shaping.link_state import LinkState
from cluster.shaping.restore import find_leftovers

MOST_ROWS = 90  # the links of ten nodes


def main(argv: list[str] | None = None) -> int:
    """Show a cluster."""
    parser = make_parser("cluster.status", __doc__)
    add_name(parser)
    return run_verb(parser, status, argv)


def status(args: Namespace) -> dict[str, object]:
    """The verb."""
    cluster = Cluster(args.name, console=Console())
    others = [spec.name for spec in cluster.engine.clusters() if spec.name != args.name]
    try:
        document = read_status(cluster)
    finally:
        cluster.close()
    if not args.json:
        print_status(document)
        if others:
            print(f"other clusters: {', '.join(others)}")
    return document


def read_status(cluster: Cluster, link_state: LinkState | None = None) -> dict[str, Any]:
    """The state of every node and link; of links that are not given the nodes are asked.

    A node that does not answer says why, and the links are then unknown.
    """
    containers = {c.node: c for c in cluster.engine.containers(cluster.name)}
    image_id = cluster.engine.image_id(cluster.spec.image)
    limits = cluster.engine.limits(list(containers.values()))
    nodes = [
        asdict(node)
        | asdict(limits.get(node.name, Limit()))
        | {
            "state": containers[node.name].state if node.name in containers else "missing",
            "health": containers[node.name].health if node.name in containers else "",
            "image_is_current": node.name in containers
            and containers[node.name].image_id == image_id,
        }
        for node in cluster.spec.nodes
    ]
    document: dict[str, Any] = {"name": cluster.name, "nodes": nodes, "links": [], "problem": ""}
    try:
        link_state = link_state or cluster.links()
    except NodeError as error:
        return document | {"problem": error.message}
    return document | link_state.document() | {"warnings": find_leftovers(cluster.spec, link_state)}


def print_status(document: dict[str, Any]) -> None:
    """Two tables, nodes and links, and whatever the user should know."""
    limited = any(n["cpus"] or n["memory_bytes"] or n["gpus"] for n in document["nodes"])
    print_table(
        [
            "NODE",
            "RANK",
            "STATE",
            "ADDRESS",
            "SSH",
            *(["CPUS", "MEMORY", "GPUS"] if limited else []),
        ],
        [
            [
                n["name"],
                n["rank"],
                _state(n),
                n["address"],
                f"{n['ssh_host']}:{n['ssh_port']}",
                *(_limits(n) if limited else []),
            ]
            for n in document["nodes"]
        ],
    )
    if document["problem"]:
        print(document["problem"])
        return
    print_shape(document, document["name"])
    for warning in document["warnings"]:
        print(f"warning: {warning}")


def print_shape(document: dict[str, Any], name: str) -> None:
    """The links in force, what they were drawn from, and what the user should know of them."""
    if not document["links"]:
        print(f"links: not shaped (python -m cluster.shape{name_flag(name)} --profile mobile)")
        _print_notes(document)
        return
    print()
    print_links(document["links"])
    for kind in ("uplink", "downlink"):
        for row in document[f"{kind}s"]:
            rate = row[f"{kind}_mbyte_s"]
            print(f"{kind} of {row['node']}: {rate:g} MB/s for all its links")
    print(
        f"profile {document['profile']}, topology {document['topology']}, seed {document['seed']}, "
        f"wire {document['wire']}, tcp {document['tcp']}"
        + ("" if document["slow_start_after_idle"] else ", no slow start after idle")
        + (", nodes without a link isolated" if document["isolated"] else "")
    )
    _print_notes(document)


def _print_notes(document: dict[str, Any]) -> None:
    for note in document["notes"]:
        print(f"note: {note}")


def print_links(links: list[dict[str, Any]]) -> None:
    """A table of links, of those of a big cluster the first ones."""
    left, links = len(links[MOST_ROWS:]), links[:MOST_ROWS]
    print_table(
        ["LINK", "RATE MB/s", "DELAY ms", "JITTER ms", "LOSS %", "BUFFER ms", "WIRE", ""],
        [
            [
                f"{link['src']} -> {link['dst']}",
                *(
                    f"{link[key]:g}"
                    for key in ("rate_mbyte_s", "delay_ms", "jitter_ms", "loss_pct", "buffer_ms")
                ),
                link["wire"],
                _more(link),
            ]
            for link in links
        ],
    )
    if left:
        print(f"… and {left} more links: --json has all")


def _more(link: dict[str, Any]) -> str:
    """What few links have."""
    said = describe_impairments({field: f"{link[field]:g}" for field in IMPAIRMENT_WORDS})
    return ", ".join(said + (["uniform"] if link["distribution"] == "uniform" else []))


def _limits(node: dict[str, Any]) -> list[str]:
    cpus, memory = node["cpus"], node["memory_bytes"]
    return [
        f"{cpus:g}" if cpus else "-",
        format_bytes(memory) if memory else "-",
        node["gpus"] or "-",
    ]


def _state(node: dict[str, Any]) -> str:
    if node["state"] != "running":
        return str(node["state"])
    return "running" if node["image_is_current"] else "running, from an older image"


if __name__ == "__main__":
    sys.exit(main())
