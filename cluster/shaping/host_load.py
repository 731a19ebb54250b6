"""Host load between two snapshots of every node: whether the host, and not a link, was the limit. Pure.

Ranks that compute on all cores do not count as overload: they run at nice 19, and the wire has priority over them. Only
effects that change the links count: packets that are late or dropped, and limits that no niceness helps against.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from protocol.link_report import CoreTimes, HostCounters, Lateness, Shown

# A wire counts a packet as late if it is released this long after it was due (node.wire.nfqueue.delay_line).
LATE_MS = 1.0
# Share of a node's packets that are late. Measured: 0 at rest, up to 1.6 while ranks train on all cores,
# 6 beside eight busy loops in one node that run at the same priority as its wire.
LATE_PCT = 5.0
# Share of all CPU time that other guests of the machine take: equals one stall of 50 ms a second.
STEAL_PCT = 5.0
# Share of the busiest core's time that the kernel spends on packets: the rest cannot serve a burst at the same rate.
SOFTIRQ_PCT = 80.0
# Share of time that a node waits for its own CPU limit; its wire waits too unless CPU time is reserved for it.
THROTTLED_PCT = 1.0

# Mean lateness of a timer. Measured: 0.1 at rest. A round trip over any link waits for two timers.
TIMERS_LATE_MS = 0.3


@dataclass(frozen=True)
class HostLoad:
    """Host load between two snapshots of the nodes; with several hosts, the worst value of any host.

    Attributes:
        steal_pct: share of all CPU time that other guests of the machine took; None if unknown, here and below.
        softirq_pct: share of the busiest core's time that the kernel spent on packets and timers.
        idle_pct: idle share of all CPU time.
        waiting_pct: share of the time in which some task had to wait for a core, if the kernel reports it.
        timers_late_ms: mean lateness of a timer.
        throttled_s, throttled_pct: by node, the time that its own CPU limit took from it.
        late_pct: by node, the share of packets to it that were more than 1 ms late.
        worst_ms: by node, the largest lateness of a packet: at most 1 ms if none was late between the snapshots, else
            the largest since its wire was set up.
        dropped: by node, packets dropped unseen.
        limits: a sentence for each way in which the host was the limit; empty if it was not.
    """

    steal_pct: float | None = None
    softirq_pct: float | None = None
    idle_pct: float | None = None
    waiting_pct: float | None = None
    timers_late_ms: float | None = None
    throttled_s: Mapping[str, float] = field(default_factory=dict)
    throttled_pct: Mapping[str, float] = field(default_factory=dict)
    late_pct: Mapping[str, float] = field(default_factory=dict)
    worst_ms: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    limits: Sequence[str] = ()

    def document(self) -> dict[str, object]:
        """Return `host` of summary.json."""
        return asdict(self) | {"limits": list(self.limits)}


def compare_readings(
    before: Mapping[str, Shown],
    after: Mapping[str, Shown],
    timers_late_ms: float | Mapping[str, float] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> HostLoad:
    """Return the host load between two snapshots of the nodes.

    Args:
        before: the first snapshot, by node name.
        after: the second; nodes that are not in both are ignored.
        timers_late_ms: the mean lateness of a timer between the two, by node, or only the largest; None if it was not
            measured.
        hosts: the host of each node, as messages name it (`Fleet.hosts`); None or empty if all nodes are on one.
    """
    both = {node: (before[node], after[node]) for node in after if node in before}
    seen = {node: _Host.between(was.host, now.host) for node, (was, now) in both.items()}
    wires = {
        node: _Wire.between(was.lateness, now.lateness)
        for node, (was, now) in both.items()
        if now.lateness is not None
    }
    throttled = {
        node: (seconds, min(100.0, _pct(seconds, now.host.at_s - was.host.at_s)))
        for node, (was, now) in both.items()
        if (seconds := _throttled_s(was.host, now.host)) is not None
    }
    waited = [host.waiting_pct for host in seen.values() if host.waiting_pct is not None]
    steal_pct = {node: host.steal_pct for node, host in seen.items()}
    softirq_pct = {node: host.softirq_pct for node, host in seen.items()}
    late_ms = _by_node(timers_late_ms)
    load = HostLoad(
        steal_pct=max(steal_pct.values(), default=None),
        softirq_pct=max(softirq_pct.values(), default=None),
        idle_pct=min((host.idle_pct for host in seen.values()), default=None),
        waiting_pct=max(waited, default=None),
        timers_late_ms=max(late_ms.values(), default=None),
        throttled_s={node: seconds for node, (seconds, _) in throttled.items()},
        throttled_pct={node: share_pct for node, (_, share_pct) in throttled.items()},
        late_pct={node: wire.late_pct for node, wire in wires.items()},
        worst_ms={node: wire.worst_ms for node, wire in wires.items()},
        dropped={node: wire.dropped for node, wire in wires.items()},
    )
    return replace(
        load, limits=_limits(load) + _limits_of_hosts(late_ms, steal_pct, softirq_pct, hosts or {})
    )


def overload_sentence(limits: Sequence[str]) -> str:
    """Return one line for the user if the host was the limit (`HostLoad.limits`), else ''."""
    return f"the host, and not the links, was the limit: {'; '.join(limits)}" if limits else ""


def since(before: int, after: int) -> int:
    """Return a counter's increase; its whole value if it was reset in between."""
    return after - before if after >= before else after


def _limits(load: HostLoad) -> list[str]:
    said = [
        _of_nodes(load.late_pct, LATE_PCT, "{value} % of the packets to {nodes} went too late"),
        _of_nodes(load.dropped, 0, "{value} packets to {nodes} were dropped unseen"),
        _of_nodes(
            load.throttled_pct, THROTTLED_PCT, "a CPU limit took {value} % of the time of {nodes}"
        ),
    ]
    return [sentence for sentence in said if sentence]


def _limits_of_hosts(
    late_ms: Mapping[str, float],
    steal_pct: Mapping[str, float],
    softirq_pct: Mapping[str, float],
    hosts: Mapping[str, str],
) -> list[str]:
    """Return the sentences on what all nodes of a host share; each value is by the node that read it."""
    took = "other machines took {value:.0f} % of the processors"
    kept = "packets alone kept a core busy {value:.0f} % of the time"
    said = [
        _of_hosts(late_ms, TIMERS_LATE_MS, "timers were {value:.1f} ms late", hosts),
        _of_hosts(steal_pct, STEAL_PCT, took, hosts),
        _of_hosts(softirq_pct, SOFTIRQ_PCT, kept, hosts),
    ]
    return [sentence for sentence in said if sentence]


def _of_hosts(
    values: Mapping[str, float], most: float, words: str, hosts: Mapping[str, str]
) -> str:
    """Return a sentence on the worst value beyond `most`, with the hosts that had one; '' if none had."""
    beyond = {node: value for node, value in values.items() if value > most}
    if not beyond:
        return ""
    named = list(dict.fromkeys(hosts[node] for node in beyond if node in hosts))
    if len(named) > 1:
        words = words.replace("{value", "up to {value")
    where = f" on {', '.join(named)}" if named else ""
    return words.format(value=max(beyond.values())) + where


def _by_node(late_ms: float | Mapping[str, float] | None) -> Mapping[str, float]:
    """Return values by node; a single value is that of no node in particular."""
    if late_ms is None:
        return {}
    return late_ms if isinstance(late_ms, Mapping) else {"": late_ms}


def _of_nodes(values: Mapping[str, float], most: float, words: str) -> str:
    beyond = {node: value for node, value in values.items() if value > most}
    if not beyond:
        return ""
    value = f"{'up to ' if len(beyond) > 1 else ''}{max(beyond.values()):.0f}"
    return words.format(value=value, nodes=", ".join(beyond))


@dataclass(frozen=True)
class _Host:
    """A machine's cores between two snapshots."""

    steal_pct: float
    idle_pct: float
    softirq_pct: float
    waiting_pct: float | None

    @classmethod
    def between(cls, before: HostCounters, after: HostCounters) -> "_Host":
        cores = [
            CoreTimes(*(b - a for a, b in zip(was, now, strict=True)))
            for was, now in zip(before.cores, after.cores, strict=False)
        ]
        total_s = sum(core.total_s for core in cores)
        waiting_pct = None
        if before.waiting_s is not None and after.waiting_s is not None:
            waiting_pct = _pct(after.waiting_s - before.waiting_s, after.at_s - before.at_s)
        return cls(
            steal_pct=_pct(sum(core.steal_s for core in cores), total_s),
            idle_pct=_pct(sum(core.idle_s for core in cores), total_s),
            softirq_pct=max((_pct(c.softirq_s, c.total_s) for c in cores), default=0.0),
            waiting_pct=waiting_pct,
        )


@dataclass(frozen=True)
class _Wire:
    """A node's wire between two snapshots."""

    late_pct: float
    worst_ms: float
    dropped: int

    @classmethod
    def between(cls, before: Lateness | None, after: Lateness) -> "_Wire":
        was = before or Lateness(packets=0, late=0, worst_ms=0.0, dropped=0)
        packets, late = since(was.packets, after.packets), since(was.late, after.late)
        worst_ms = after.worst_ms if late else min(after.worst_ms, LATE_MS)
        return cls(_pct(late, packets), worst_ms, since(was.dropped, after.dropped))


def _throttled_s(before: HostCounters, after: HostCounters) -> float | None:
    """Return how long a node waited for its CPU limit, summed over cores; None if the kernel does not report it."""
    if before.throttled_s is None or after.throttled_s is None:
        return None
    return round(after.throttled_s - before.throttled_s, 3)


def _pct(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole > 0 else 0.0
