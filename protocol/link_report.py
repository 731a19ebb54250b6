"""A node's reports on its links: the report of `node.wire apply`, the output of `node.wire show`, `inspect` and `try`.

`apply` exits with 0; with 1 and one line on standard error if the node could not do it; with 2 if the plan is invalid.
`clear` removes everything that `apply` made. A new node writes its first report to `/run/gradwire/first-report.json`; a
process that can take the lock `first-report.lock` there knows that it is done (an empty report: it failed). `try`
prints `{wire: why this kernel cannot do it, or ""}`, found by trying.
"""

from typing import Annotated, NamedTuple

from protocol.link import WIRE_CHOICES, Link, Pair
from protocol.node_plan import NodePlan
from protocol.reader import LINE, POSITIVE, WORD, Count, Seconds, one_of, within

Bytes = Annotated[int, POSITIVE]
# From what every IPv4 host must take (RFC 791) to the loopback device's.
Mtu = Annotated[int, within(576, 65_536)]


class LinkReport(NamedTuple):
    """How a node has carried out its plan: standard output of `node.wire apply`."""

    node: Annotated[str, WORD]
    """The node's name."""
    device: Annotated[str, WORD]
    """The network device that carries the links."""
    mtu: Mtu
    """Its largest IP packet, in bytes."""
    wire: Annotated[str, one_of(*(wire for wire in WIRE_CHOICES if wire != "auto"))]
    """What delays and drops packets."""
    tcp: Annotated[str, LINE]
    """The congestion control that the kernel really uses on the links."""
    links: list[Link]
    """The links of the plan, each with the wire that it got."""
    notes: list[str]
    """Warnings for the user: a link on which losses hit super-packets, a congestion control that this kernel lacks."""


class LinkCounters(NamedTuple):
    """The kernel's counters of the egress class of a link that starts at this node: frames with Ethernet header."""

    sent_bytes: Count
    """Bytes sent since the link was laid."""
    sent_packets: Count
    """Packets sent since then: frames, after super-packets were cut."""
    dropped_packets: Count
    """Packets dropped since then because the link's queue was full."""
    backlog_bytes: Count
    """Bytes in the queue now."""
    backlog_packets: Count
    """Packets in the queue now."""


class WireCounters(NamedTuple):
    """What a wire has done to the packets of a link that ends at this node, since it was laid."""

    packets: Count
    """Packets that arrived."""
    lost: Count
    """Packets that it dropped because the link is asked to lose them."""


class Lateness(NamedTuple):
    """How punctually the nfqueue wire has released packets since it was laid."""

    packets: Count
    """Packets that passed."""
    late: Count
    """Packets that were released more than 1 ms after they were due."""
    worst_ms: Seconds
    """Lateness of the latest packet."""
    dropped: Count
    """Packets that were dropped unseen, because the wire got too little CPU time."""


class CoreTimes(NamedTuple):
    """The CPU time of one processor since the machine was started: proc_stat(5)."""

    total_s: Seconds
    """Total time."""
    idle_s: Seconds
    """Time in which it was idle or waited for a disk."""
    softirq_s: Seconds
    """Time in which the kernel handled packets and timers."""
    steal_s: Seconds
    """Time that other guests of the same machine took."""


class HostCounters(NamedTuple):
    """CPU use of the host so far, as this node sees it: all processors, and what the node's own limit withheld."""

    at_s: float
    """Time of reading, by the node's monotonic clock."""
    cores: list[CoreTimes]
    """The machine's processors."""
    waiting_s: Seconds | None
    """How long at least one task waited for a processor (/proc/pressure/cpu); null if the kernel does not tell."""
    throttled_s: Seconds | None
    """How long this container's own CPU limit throttled it (cgroup v1 and v2); null likewise."""
    boot_id: str = ""
    """Boot id of the machine, new at each start: nodes with the same boot id share a clock."""


class Settings(NamedTuple):
    """A node's kernel settings for connections: `settings` in contract.json and run.yml, there grouped by nodes."""

    kernel: Annotated[str, LINE]
    """Release of the kernel."""
    wmem_max_bytes: Bytes
    """net.core.wmem_max of the host: the largest buffer that a program may set on a socket. Read from a socket, because
    on older kernels a container cannot read the setting."""
    rmem_max_bytes: Bytes
    """Likewise net.core.rmem_max."""
    tcp_wmem_bytes: Bytes
    """The last of the three numbers of the node's own net.ipv4.tcp_wmem: the kernel's limit in tuning a buffer."""
    tcp_rmem_bytes: Bytes
    """Likewise net.ipv4.tcp_rmem."""
    slow_start_after_idle: bool
    """net.ipv4.tcp_slow_start_after_idle, the node's own."""
    default_tcp: Annotated[str, LINE]
    """The congestion control of connections that use no link, for example to the host."""
    mtu: Mtu | None
    """MTU of the data network; null if the node is not connected to it."""


class Shown(NamedTuple):
    """What is in force on a node: standard output of `node.wire show`."""

    plan: NodePlan | None
    """The plan in force; null if nothing is shaped."""
    report: LinkReport | None
    """The report on that plan."""
    counters: dict[str, LinkCounters]
    """Counters of the links that start here, by peer."""
    received: dict[str, WireCounters]
    """Counters of the links that end here, by peer."""
    replayed: list[Pair]
    """The links of the cluster that traces change at the moment; they return to `plan` afterwards."""
    lateness: Lateness | None
    """Null if the wire cannot tell (netem)."""
    host: HostCounters
    """CPU use of the host so far."""
    settings: Settings
    """Settings of the node's kernel."""
    notes: list[str]
    """Warnings: what is not as it should be."""


class Marks(NamedTuple):
    """Digests or ids of all parts, by which the host later sees whether anything has changed: each is equal or not."""

    laying: Annotated[str, LINE]
    """An id, new each time the links are laid or traces begin to change them; empty if nothing is shaped."""
    start: Annotated[str, LINE]
    """When the container was started."""
    queues: Annotated[str, LINE]
    """tc's qdiscs, with their options."""
    classes: Annotated[str, LINE]
    """tc's classes: rates and bursts."""
    filters: Annotated[str, LINE]
    """tc's filters: which packets belong to which link."""
    rules: Annotated[str, LINE]
    """The rules of iptables."""
    routes: Annotated[str, LINE]
    """The routes, with the congestion control of each, and the rules that choose among the tables."""
    devices: Annotated[str, LINE]
    """The network devices and their offloads."""
    tcp: Annotated[str, LINE]
    """The kernel's TCP settings."""
    wire: Annotated[str, LINE]
    """The nfqueue wire: the process, its queues, and what it does to the packets of each."""


class Inspected(NamedTuple):
    """Standard output of `node.wire inspect`."""

    shown: Shown
    """The output of `show`."""
    marks: Marks
    """The marks of what is in force."""
