"""Host load as the nodes report it, between one reading and the next."""

from collections.abc import Mapping, Sequence

from cluster.contract.doubt import Strain, make_strain
from cluster.shaping.host_load import compare_readings
from cluster.shaping.link_state import read_link_state
from cluster.ssh.fleet import Fleet
from protocol.link_report import Shown


class Witness:
    """Reads all nodes whenever something does not hold, and compares with the last time."""

    def __init__(self, fleet: Fleet, readings: Mapping[str, Shown]) -> None:
        self._fleet = fleet
        self._before = self._now = readings

    def look(self) -> None:
        """Read the nodes: from now on `strain` is about what was since the last time.

        Raises:
            NodeError: a node does not answer, or not to be understood.
        """
        self._before, self._now = self._now, read_link_state(self._fleet).shown

    def strain(self, nodes: Sequence[str], timers_late_ms: float | None) -> Strain | None:
        """In what way the host was the limit of these nodes; None where it gave enough.

        Args:
            nodes: on the way, in the order in which packets pass them.
            timers_late_ms: by which programs there were late meanwhile, on average, if anybody knows.
        """
        before, now = (
            {node: reading for node, reading in readings.items() if node in nodes}
            for readings in (self._before, self._now)
        )
        return make_strain(compare_readings(before, now, timers_late_ms), src=nodes[0])
