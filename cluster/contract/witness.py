"""Host load, and the wires' counters, between one reading of the nodes and the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cluster.contract.doubt import Strain, make_strain
from cluster.contract.measured import DropCount
from cluster.contract.probe_session import ProbeSession
from cluster.shaping.host_load import compare_readings
from cluster.shaping.link_state import checked_state
from protocol.link import Link, Pair
from protocol.link_report import Shown, WireCounters

Received = Mapping[Pair, WireCounters]


@dataclass(frozen=True)
class DropCounters:
    """Counters of the wires at the links' ends, at three moments.

    Attributes:
        before, after: before and after the pings that measure loss.
        at_end: at the end of the pass, when speeds are known, too.
    """

    before: Received = field(default_factory=dict)
    after: Received = field(default_factory=dict)
    at_end: Received = field(default_factory=dict)

    def closed(self, received: Received) -> "DropCounters":
        """Return a copy with the last reading."""
        return replace(self, at_end=received)

    def of(self, link: Link) -> DropCount | None:
        """Return one link's count; None if its node does not report it, or if it fell: the wire began anew."""
        readings = [found.get(link.ends) for found in (self.before, self.after, self.at_end)]
        told = [one for one in readings if one is not None]
        if len(told) < len(readings):
            return None
        first, second, last = told
        if any(
            after.packets < before.packets or after.lost < before.lost
            for before, after in pairwise(told)
        ):
            return None
        return DropCount(
            packets=second.packets - first.packets,
            lost=second.lost - first.lost,
            all_packets=last.packets - first.packets,
            all_lost=last.lost - first.lost,
        )


class Witness:
    """An observer of the host load: reads all nodes if something does not hold, and compares with the last reading.

    Args:
        hosts: `Fleet.hosts`.
        session: the probes, which read the nodes.
        readings: what the nodes reported before.
    """

    def __init__(
        self, hosts: Mapping[str, str], session: ProbeSession, readings: Mapping[str, Shown]
    ) -> None:
        self._hosts, self._session = hosts, session
        self._before = self._now = readings
        self._late_ms: Mapping[str, float] = {}
        self.most_late_ms: dict[str, float] = {}
        """How late each node's timers were between two readings, on average; the largest of all readings."""

    def look(self) -> None:
        """Read the nodes; `strain` then covers the time since the previous reading.

        Raises:
            NodeError: a node does not answer, or its answer cannot be parsed.
        """
        self._before, self._now = self._now, self._read()
        self._late_ms = self._session.timers_late_ms()
        for node, late_ms in self._late_ms.items():
            self.most_late_ms[node] = max(late_ms, self.most_late_ms.get(node, 0.0))

    @property
    def latest(self) -> Mapping[str, Shown]:
        """What the nodes reported at the last look, or before the measurement if there was none."""
        return self._now

    def received(self) -> Received:
        """Return what the wires have counted so far, for each link at the node where it ends.

        Raises:
            NodeError: a node does not answer, or its answer cannot be parsed.
        """
        return {
            (peer, node): counters
            for node, reading in self._read().items()
            for peer, counters in reading.received.items()
        }

    def _read(self) -> Mapping[str, Shown]:
        return checked_state(self._session.shown()).shown

    def strain(self, nodes: Sequence[str], pings_late_ms: float = 0.0) -> Strain | None:
        """Return how the host was the limit of these nodes; None if it was not.

        Args:
            nodes: on the way, in the order in which packets pass them.
            pings_late_ms: by how much pings between them were late, on average.
        """
        before, now = (
            {node: reading for node, reading in readings.items() if node in nodes}
            for readings in (self._before, self._now)
        )
        late_ms = {node: max(pings_late_ms, self._late_ms.get(node, 0.0)) for node in nodes}
        load = compare_readings(before, now, late_ms, self._hosts)
        return make_strain(load, pings_late_ms, src=nodes[0])
