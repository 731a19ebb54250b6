"""Host load between two readings of every node: whether the host, and not a link, was the limit. Pure.

Ranks that compute on all cores are no overload: they run at nice 19, and the wire goes before them. What counts is what
changes the links: packets that go late or are dropped, and what no niceness helps against.
"""

from collections.abc import Mapping
from typing import Any

# Of the packets of a node, more than 1 ms after they were due. Measured: none at rest, up to 1.6 while ranks train on
# all cores, 6 beside eight busy loops in one node, as important as its wire.
LATE_PCT = 5.0
# Of the processors' time, taken by other guests of the same machine: as much as one stall of 50 ms a second.
STEAL_PCT = 5.0
# Of the busiest core's time, spent on packets by the kernel: what is left does not serve a burst at the same rate.
SOFTIRQ_PCT = 80.0
# Of the time, spent waiting because of the node's own CPU limit; so does its wire, where no time is reserved for it.
THROTTLED_PCT = 1.0

# A timer, on average, behind its time. Measured: 0.1 at rest. Every link has two on a round trip.
TIMERS_LATE_MS = 0.3

Reading = Mapping[str, Any]
"""What one node says of itself, `strain` and `lateness` of `node.wire show`: docs/formats.md."""


def host_summary(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    timers_late_ms: float | None = None,
) -> dict[str, Any]:
    """What the host gave between two readings; `limits` are sentences, none where it gave enough.

    Args:
        before: by node.
        after: by node.
        timers_late_ms: how late a timer was meanwhile, on average; None: nobody looked.

    Returns:
        {"steal_pct", "softirq_pct", "idle_pct", "waiting_pct", "timers_late_ms", "throttled_s", "throttled_pct",
        "late_pct", "worst_ms", "dropped", "limits"}: steal and idle of all cores together, softirq of the busiest,
        `waiting` where the kernel tells how long a task had to wait for a core; throttled, late and dropped by node,
        and the latest packet since the node's wire was laid. Where nodes are on several hosts, the worst of them.
    """
    both = {node: (before[node], after[node]) for node in after if node in before}
    hosts = [_host(was["strain"], now["strain"]) for was, now in both.values()]
    wires = {node: _wire(was["lateness"], now["lateness"]) for node, (was, now) in both.items()}
    throttled = {
        node: _throttled(was["strain"], now["strain"]) for node, (was, now) in both.items()
    }
    summary = {
        "steal_pct": max((host["steal_pct"] for host in hosts), default=None),
        "softirq_pct": max((host["softirq_pct"] for host in hosts), default=None),
        "idle_pct": min((host["idle_pct"] for host in hosts), default=None),
        "waiting_pct": max(
            (host["waiting_pct"] for host in hosts if host["waiting_pct"] is not None), default=None
        ),
        "timers_late_ms": timers_late_ms,
        **_by_node(throttled, "throttled_s", "throttled_pct"),
        **_by_node(wires, "late_pct", "worst_ms", "dropped"),
    }
    return summary | {"limits": _limits(summary)}


def overload_sentence(host: Mapping[str, Any] | None) -> str:
    """One line for the user, where the host was the limit; '' where it was not, or nobody knows."""
    limits = host["limits"] if host else []
    return f"the host, and not the links, was the limit: {'; '.join(limits)}" if limits else ""


def _by_node(found: Mapping[str, Mapping[str, Any]], *names: str) -> dict[str, dict[str, Any]]:
    """Each of these figures, by node; nodes of which nobody can tell are left out."""
    return {name: {node: of[name] for node, of in found.items() if of} for name in names}


def _limits(summary: Mapping[str, Any]) -> list[str]:
    said = [
        _of_nodes(
            summary["late_pct"], LATE_PCT, "{value} % of the packets to {nodes} went too late"
        ),
        _of_nodes(summary["dropped"], 0, "{value} packets to {nodes} were dropped unseen"),
        _of_nodes(
            summary["throttled_pct"],
            THROTTLED_PCT,
            "a CPU limit took {value} % of the time of {nodes}",
        ),
    ]
    if (summary["timers_late_ms"] or 0) > TIMERS_LATE_MS:
        said.append(f"timers were {summary['timers_late_ms']:.1f} ms late")
    if (summary["steal_pct"] or 0) > STEAL_PCT:
        said.append(f"other machines took {summary['steal_pct']:.0f} % of the processors")
    if (summary["softirq_pct"] or 0) > SOFTIRQ_PCT:
        said.append(f"packets alone kept a core busy {summary['softirq_pct']:.0f} % of the time")
    return [sentence for sentence in said if sentence]


def _of_nodes(values: Mapping[str, float], most: float, words: str) -> str:
    beyond = {node: value for node, value in values.items() if value > most}
    if not beyond:
        return ""
    value = f"{'up to ' if len(beyond) > 1 else ''}{max(beyond.values()):.0f}"
    return words.format(value=value, nodes=", ".join(beyond))


def _host(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    cores = [
        {key: now[key] - was[key] for key in now}
        for was, now in zip(before["cores"], after["cores"], strict=False)
    ]
    total_s = sum(core["total_s"] for core in cores)
    passed_s = after["at_s"] - before["at_s"]
    waited = None not in (before["waiting_s"], after["waiting_s"])
    return {
        "steal_pct": _pct(sum(core["steal_s"] for core in cores), total_s),
        "idle_pct": _pct(sum(core["idle_s"] for core in cores), total_s),
        "softirq_pct": max((_pct(c["softirq_s"], c["total_s"]) for c in cores), default=0.0),
        "waiting_pct": _pct(after["waiting_s"] - before["waiting_s"], passed_s) if waited else None,
    }


def _throttled(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    if None in (before["throttled_s"], after["throttled_s"]):
        return {}
    throttled_s = after["throttled_s"] - before["throttled_s"]
    passed_s = after["at_s"] - before["at_s"]
    share_pct = min(100.0, _pct(throttled_s, passed_s))  # the kernel adds up what each core waited
    return {"throttled_s": round(throttled_s, 3), "throttled_pct": share_pct}


def _wire(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """Nothing where the wire cannot tell."""
    if after is None:
        return {}
    counters = ("packets", "late", "dropped")
    news = {name: _since(before[name] if before else 0, after[name]) for name in counters}
    return {
        "late_pct": _pct(news["late"], news["packets"]),
        "worst_ms": after["worst_ms"],
        "dropped": news["dropped"],
    }


def _since(before: int, after: int) -> int:
    """What a counter has counted; all that it shows, where it has been started anew."""
    return after - before if after >= before else after


def _pct(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole > 0 else 0.0
