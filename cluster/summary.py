"""From counters and metrics to the figures of a summary: bytes, collectives and seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.accounts import (
    all_sent,
    bucket_seconds,
    collective_rows,
    loop_bytes,
    read_collectives,
)
from cluster.carried import Sent, expected_by_link
from cluster.network import Contract, link_paths, make_network
from cluster.shaping import Shape
from cluster.topology import Pair

Event = Mapping[str, Any]
Paths = Mapping[Pair, Sequence[Pair]]


def account(
    folder: Path,
    told: Mapping[str, Mapping[str, Event]],
    nodes: Sequence[str],
    shape: Shape,
    carried: Mapping[str, int],
    contract: Contract | None,
    *,
    changing: bool,
) -> dict[str, Any]:
    """`bytes`, `collectives`, `bounds` and `seconds` of summary.json.

    Args:
        folder: the run's, with what the ranks left.
        told: rank, by its name -> event -> its last line in the rank's metrics; in the order of ranks.
        nodes: where each of them ran.
        shape: the links in force when the run began.
        carried: bytes on each link, from before the ranks started until after they ended.
        contract: what was measured of the links, if anything was.
        changing: whether the links changed during the run: then nothing can be said of bounds.
    """
    ranks = list(told)
    starts, ends = (
        {name: events.get(which, {}) for name, events in told.items()} for which in ("start", "end")
    )
    paths = link_paths(nodes, shape.links, isolated=shape.isolated)
    collectives = read_collectives(folder, ranks)
    network = make_network(
        nodes,
        shape.links,
        {"uplink": shape.uplinks, "downlink": shape.downlinks},
        shape.mtu,
        contract,
        isolated=shape.isolated,
    )
    known = bool(shape.links) and not changing
    lossy = [f"{link.src}->{link.dst}" for link in shape.links if link.is_flawed]
    loop = loop_bytes(starts, ends, nodes, paths, lossy)
    return {
        "bytes": byte_summary(carried, all_sent(ends, nodes), paths) | {"loop": loop},
        "bounds": network.source if known else None,
        "collectives": collective_rows(collectives, ends, network if known else None),
        "seconds": bucket_seconds(ends, collectives),
    }


def byte_summary(carried: Mapping[str, int], sent: Sequence[Sent], paths: Paths) -> dict[str, Any]:
    """Bytes of a run: what the links carried, next to what the collectives should send.

    Args:
        carried: 'node1->node2' -> bytes by the kernel's counters, headers included.
        sent: what the ranks say of themselves; programs that say nothing of it: then nothing is expected.
        paths: the links that lead from each node to each other.
    """
    expected = expected_by_link(sent, paths) if sent else None
    expected_bytes = sum(expected.values()) if expected else None
    total = sum(carried.values())
    return {
        "total": total,
        "links": dict(carried),
        "payload": sum(one.payload for one in sent) if sent else None,
        "expected": expected_bytes,
        "measured_over_expected": round(total / expected_bytes, 4) if expected_bytes else None,
    }
