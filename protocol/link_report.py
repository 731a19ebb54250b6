"""What a node says of its links: the report of `node.wire apply`, what `node.wire show`, `inspect` and `try` print.

`apply` exits with 0; 1 with one line on standard error if the node could not do it, 2 for a plan that is no plan.
`clear` removes everything that `apply` made. A new node writes its first report to `/run/gradwire/first-report.json`;
who can take the lock `first-report.lock` there knows that it is done (an empty report: it failed). `try` prints
`{wire: why this kernel cannot do it, or ""}`, found by trying.
"""

from typing import Annotated, NamedTuple

from protocol.link import WIRES, Link, Pair
from protocol.node_plan import NodePlan
from protocol.reader import LINE, POSITIVE, Count, Seconds, one_of

Bytes = Annotated[int, POSITIVE]


class Report(NamedTuple):
    """What a node has made of its plan: standard output of `node.wire apply`."""

    node: str
    """Its name."""
    device: str
    """The network device that carries the links."""
    mtu: Annotated[int, POSITIVE]
    """Its largest IP packet, in bytes."""
    wire: Annotated[str, one_of(*(wire for wire in WIRES if wire != "auto"))]
    """What delays and drops."""
    tcp: str
    """The congestion control that the kernel really uses on the links."""
    links: list[Link]
    """Those of the plan, with the wire that they got."""
    notes: list[str]
    """Sentences for the user: a link on which losses hit super-packets, a congestion control that this kernel lacks."""


class LinkCounters(NamedTuple):
    """The egress class of a link that starts at this node, as the kernel counts it: frames with Ethernet header."""

    sent_bytes: Count
    """Sent since the link was laid."""
    sent_packets: Count
    """Likewise packets: frames, after super-packets were cut."""
    dropped_packets: Count
    """Dropped since then for want of room in the link's queue."""
    backlog_bytes: Count
    """What waits in the queue now."""
    backlog_packets: Count
    """How many packets wait there."""


class WireCounters(NamedTuple):
    """What a wire has done to the packets of a link that ends at this node, since it was laid."""

    packets: Count
    """How many came to it."""
    lost: Count
    """How many of them it has dropped, as the link is asked to lose them."""


class Lateness(NamedTuple):
    """How punctual the nfqueue wire was since it was laid."""

    packets: Count
    """That it has let go."""
    late: Count
    """Of these, more than 1 ms after they were due."""
    worst_ms: Seconds
    """How late the latest was."""
    dropped: Count
    """Packets that were dropped unseen, for want of a processor."""


class CoreTimes(NamedTuple):
    """What one processor has done since the machine was started: proc_stat(5)."""

    total_s: Seconds
    """All of its time."""
    idle_s: Seconds
    """In which it did nothing, or waited for a disk."""
    softirq_s: Seconds
    """In which the kernel handled packets and timers."""
    steal_s: Seconds
    """Which other guests of the same machine had."""


class HostCounters(NamedTuple):
    """How the host's processors were used so far, as this node sees it: all of them, and what its own limit took."""

    at_s: float
    """When, by the node's monotonic clock."""
    cores: list[CoreTimes]
    """The machine's processors."""
    waiting_s: Seconds | None
    """How long some task had to wait for a processor (/proc/pressure/cpu); null where the kernel does not tell."""
    throttled_s: Seconds | None
    """How long this container was kept waiting by its own CPU limit (cgroup v1 and v2); null likewise."""
    boot_id: str = ""
    """Of the machine, another one each time that it is started: nodes that say the same share a clock."""


class Settings(NamedTuple):
    """What a node's kernel decides of connections: `settings` in contract.json and run.yml, there grouped by nodes."""

    kernel: Annotated[str, LINE]
    """Its release."""
    wmem_max_bytes: Bytes
    """net.core.wmem_max of the host: the most that a program may set a socket's buffer to. Asked of a socket, as on
    older kernels a container cannot read it."""
    rmem_max_bytes: Bytes
    """Likewise net.core.rmem_max."""
    tcp_wmem_bytes: Bytes
    """The last of net.ipv4.tcp_wmem's three numbers, the node's own: the most that the kernel tunes a buffer to."""
    tcp_rmem_bytes: Bytes
    """Likewise of net.ipv4.tcp_rmem."""
    slow_start_after_idle: bool
    """net.ipv4.tcp_slow_start_after_idle, the node's own."""
    default_tcp: Annotated[str, LINE]
    """The congestion control of connections that leave the links: to the host, say."""
    mtu: Bytes | None
    """Of the data network; null in a node that is not connected to it."""


class Shown(NamedTuple):
    """What is in force on a node: standard output of `node.wire show`."""

    plan: NodePlan | None
    """The plan in force; null where nothing is shaped."""
    report: Report | None
    """Its report."""
    counters: dict[str, LinkCounters]
    """By peer."""
    received: dict[str, WireCounters]
    """Of the links that end here, by peer."""
    replayed: list[Pair]
    """The links of the cluster that traces change at the moment: the plan is then what comes back."""
    lateness: Lateness | None
    """Null where the wire cannot tell (netem)."""
    host: HostCounters
    """How its processors were used so far."""
    settings: Settings
    """Of its kernel."""
    notes: list[str]
    """What is not as it should be."""


class Marks(NamedTuple):
    """By what the host sees later whether anything was changed: of each part a digest or an id, the same or not."""

    laying: Annotated[str, LINE]
    """Another one each time that the links are laid, or traces begin to change them; empty where nothing is shaped."""
    start: Annotated[str, LINE]
    """When the container was started."""
    queues: Annotated[str, LINE]
    """tc's qdiscs, with their options."""
    classes: Annotated[str, LINE]
    """tc's classes: rates and bursts."""
    filters: Annotated[str, LINE]
    """tc's filters: which packets belong to which link."""
    rules: Annotated[str, LINE]
    """Of iptables."""
    routes: Annotated[str, LINE]
    """With the congestion control of each, and the rules that choose among the tables."""
    devices: Annotated[str, LINE]
    """The network devices and their offloads."""
    tcp: Annotated[str, LINE]
    """The kernel's settings of TCP."""
    wire: Annotated[str, LINE]
    """Of the nfqueue wire: the process, its queues, and what it does to the packets of each."""


class Inspected(NamedTuple):
    """Standard output of `node.wire inspect`."""

    shown: Shown
    """As `show` says it."""
    marks: Marks
    """Of what is in force."""
