"""Runs for tests of the live view, made of the lines that nodes would send."""

import json

from cluster.live.describe import remember
from cluster.live.news import Measured, Phase
from cluster.live.sample import parse_sample
from cluster.live.tracker import LiveRank, Tracker, update
from protocol.link import Link

BEGAN = 1000.0
MBYTE = 10**6


def tracker(nodes=3, steps=200):
    names = [f"node{number}" for number in range(1, nodes + 1)]
    links = [
        Link(
            src, dst, rate_mbyte_s=4.0, delay_ms=80.0, jitter_ms=0.0, loss_pct=0.0, buffer_ms=161.0
        )
        for src in names
        for dst in names
        if src != dst
    ]
    ranks = tuple(LiveRank(name, name, rank) for rank, name in enumerate(names))
    return Tracker(
        "20261121-101500-mobile-fedavg",
        "/runs/x",
        "fedavg",
        "mobile",
        steps,
        BEGAN,
        ranks,
        tuple(links),
    )


def running(nodes=3):
    return update(tracker(nodes), Phase("running"), BEGAN)


def line(rank, at, peers=(), sent=None, links=None, **values):
    """A line of node.telemetry about a rank that only computes."""
    said = {"state": "R", "cpu_s": at - BEGAN, "main_s": at - BEGAN, "collective": ""} | values
    counted = {peer: [sent or 0, 0, 0, 4.0] for peer in peers}
    ranks = {str(rank): said}
    return json.dumps(
        {"time": at, "spent_s": 0.001 * (at - BEGAN), "ranks": ranks, "links": links or counted}
    )


def hear(one, rank, at, **values):
    """Return the tracker after a line from the node of `rank`."""
    name = one.ranks[rank].node
    peers = [link.dst for link in one.links if link.src == name]
    sample = parse_sample(line(rank, at, peers, **values), [rank], peers)
    return update(one, Measured(name, sample), at)


def under_way(seconds=10, nodes=3):
    """A run after some seconds in which each rank makes a step and each link carries 1 MB per second."""
    one = running(nodes)
    for second in range(1, seconds + 1):
        at = BEGAN + second
        for rank in range(nodes):
            metrics = {"step": second, "loss": 2.0 - second / 100, "compute_s": 0.5 * second}
            metrics |= {"comm_s": 0.3 * second, "began": BEGAN, "time": at}
            one = hear(one, rank, at, sent=second * MBYTE, **metrics)
        one = remember(one, at)
    return one
