"""The nfqueue wire as a backend: iptables rules queue packets, a daemon releases them."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node.wire import iptables, state
from node.wire.commands import CommandError, Qdisc, WireError
from node.wire.layout import MAX_SLOT, Layout, packets_in_flight, seed_of
from node.wire.nfqueue import daemon
from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.nfnetlink import META, SIZE, WHOLE, QueueStatus, queue_status
from protocol.gilbert import loss_burst_chances
from protocol.link import Link
from protocol.link_report import Lateness, WireCounters
from protocol.reader import parse

NAME = "nfqueue"
IPV6_ADDRESSES = Path("/proc/net/if_inet6")
DAEMON_ADDRESS = "\0gradwire-delayer"
"""An abstract socket: it belongs to the network namespace, as the queues do, and is gone with the daemon."""
DAEMON_LOG = state.FOLDER / "delayer.log"
ANSWER_TIMEOUT_S = 10.0
HINT = "load nfnetlink_queue and xt_NFQUEUE, or sch_netem and ifb, on the Docker host"


class Request(NamedTuple):
    """What the daemon must do."""

    queues: dict[int, Behaviour]
    """By queue number."""
    downlink: tuple[float, float] | None
    """The downlink in front of the queues of incoming packets: bytes a second, and the longest wait in seconds; None
    if there is no limit."""
    nodes: int
    """The size of the cluster: the daemons of all nodes share the processors."""


class Answer(NamedTuple):
    """What the daemon replies."""

    error: str
    """Why it could not do what was asked; empty if it could."""
    late: int = 0
    """Packets released more than 1 ms late; set if the request is empty."""
    worst_ms: float = 0.0
    """How late the worst of them was released; set likewise."""
    taken: dict[str, tuple[int, int]] = {}
    """By queue number: how many packets arrived, and how many of them random loss dropped; set likewise."""
    does: str = ""
    """A checksum of everything that it does; set if the request asks for it."""


def unavailable() -> str:
    """Return why this kernel cannot run the wire, found by trying the rules in a scratch chain; empty if it can."""
    try:
        iptables.commit("IPv4", iptables.trial())
    except CommandError as error:
        return str(error)
    return ""


def tc_lines(before: Layout | None, after: Layout) -> list[str]:
    """Return nothing: this wire does not use traffic control."""
    del before, after
    return []


def start(before: Layout | None, after: Layout) -> list[str]:
    """Set rules and queues. Returns notes for the user.

    Raises:
        WireError: this kernel cannot do it, or the daemon does not work.
    """
    if _ask({}) is None:
        _start_daemon()  # it is ready about when the rules are; a queue without a daemon lets all pass
    fresh = before is None
    try:
        iptables.commit("IPv4", iptables.ipv4(after, fresh))
    except CommandError as error:
        raise WireError(f"this kernel cannot delay packets ({error}): {HINT}") from error
    notes = []
    if _has_ipv6(after.device.name):
        try:
            iptables.commit("IPv6", iptables.ipv6(after, fresh))
        except CommandError as error:
            notes.append(f"IPv6 passes without delay: {error}")
    _tell(request_of(after)._asdict())
    return notes


def change(before: Layout, after: Layout) -> list[str]:
    """Change the values of links that both layouts have; the random streams continue."""
    old, new = request_of(before).queues, request_of(after).queues
    changed = {queue: behaviour for queue, behaviour in new.items() if behaviour != old[queue]}
    if changed:
        _tell({"change": changed})
    return []


def _tell(request: Mapping[str, object]) -> None:
    """Send a request to the daemon.

    Raises:
        WireError: it does not run, or it failed.
    """
    answer = _ask(request)
    if answer is None:
        raise WireError(f"the delayer does not run: {_last_words()}")
    if answer.error:
        raise WireError(f"the delayer cannot work: {answer.error}")


def _has_ipv6(device: str) -> bool:
    return IPV6_ADDRESSES.exists() and device in IPV6_ADDRESSES.read_text().split()


def request_of(layout: Layout) -> Request:
    """Return the daemon's request for this layout: one queue for each end of a link."""
    plan = layout.plan
    limited = plan.downlink_mbyte_s is not None
    queues = {
        iptables.INCOMING + layout.slots[peer]: _behaviour(layout, link, limited)
        for peer, link in plan.incoming().items()
    } | {
        iptables.REPLIES + layout.slots[peer]: _behaviour(layout, link, False)
        for peer, link in plan.outgoing().items()
    }
    nodes = 1 + len(plan.peers) + len(plan.routes)
    return Request(queues, _downlink(layout), nodes)


def _behaviour(layout: Layout, link: Link, limited: bool) -> Behaviour:
    harmed = link.duplicate_pct or link.corrupt_pct
    bursts = loss_burst_chances(link)
    return Behaviour(
        delay_s=layout.beyond_underlay(link).delay_ms / 1e3,
        jitter_s=link.jitter_ms / 1e3,
        distribution=link.distribution,
        loss=0.0 if bursts else link.loss_pct / 100,
        bursts=bursts,
        duplicate=link.duplicate_pct / 100,
        corrupt=link.corrupt_pct / 100,
        reorder=link.reorder_pct / 100,
        seed=seed_of(layout.plan, link),
        max_packets=packets_in_flight(layout.at_most(link)),
        copied=WHOLE if harmed else SIZE if limited else META,
        limited=limited,
    )


def _downlink(layout: Layout) -> tuple[float, float] | None:
    """Return bytes a second, and the longest wait of a packet: that of the longest queue of an incoming link.

    Not at the rate that a trace gives the link at the moment: in an outage, its queue lasts for minutes.
    """
    if layout.plan.downlink_mbyte_s is None:
        return None
    links = map(layout.at_most, layout.plan.incoming().values())
    longest_ms = max((link.buffer_ms for link in links), default=0.0)
    return layout.plan.downlink_mbyte_s * 1e6, longest_ms / 1e3


def stop(device: str, found: list[Qdisc]) -> None:
    """Remove rules and daemon. Held packets are released at once."""
    del device, found
    iptables.remove()
    _ask({"stop": True})


def warnings() -> list[str]:
    """Return a warning if packets were dropped because the daemon was too slow for them."""
    lost = sum(status.dropped_full + status.dropped_unread for status in _own_queues())
    return [f"the delayer could not keep up: {lost} packets dropped"] if lost else []


def lateness() -> Lateness | None:
    """Return how many packets passed, how many of them more than 1 ms late, the worst, and how many were dropped."""
    answer = _ask({})
    if answer is None:
        return None
    own = _own_queues()
    return Lateness(
        packets=sum(status.packets for status in own),
        late=answer.late,
        worst_ms=answer.worst_ms,
        dropped=sum(status.dropped_full + status.dropped_unread for status in own),
    )


def counters(layout: Layout) -> dict[str, WireCounters]:
    """Return how many packets arrived on each incoming link and how many random loss dropped, by peer."""
    answer = _ask({})
    taken = answer.taken if answer else {}
    queues = {peer: str(iptables.INCOMING + layout.slots[peer]) for peer in layout.plan.incoming()}
    return {peer: WireCounters(*taken[queue]) for peer, queue in queues.items() if queue in taken}


def _own_queues() -> list[QueueStatus]:
    return [
        status
        for queue, status in queue_status().items()
        if queue - iptables.INCOMING in range(MAX_SLOT + 1)
        or queue - iptables.REPLIES in range(MAX_SLOT + 1)
    ]


def mark() -> str:
    """Return which socket serves which queue, and a checksum of what it does; a restarted daemon has another mark."""
    served = sorted((queue, status.port) for queue, status in queue_status().items())
    answer = _ask({"does": True})
    return json.dumps([served, answer.does if answer else ""])


def fault(layout: Layout, found: list[Qdisc]) -> str:
    """Return what is missing of a wire that should be in force; empty if it is complete."""
    del layout, found
    return "the delayer does not run: packets pass without delay" if _ask({}) is None else ""


def _start_daemon() -> None:
    """Fork the daemon with a socket that listens already, so that nothing has to wait for it to appear.

    A fork of this process is ready at once; another Python would first need 60 ms of a core, on every node.
    """
    state.FOLDER.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(DAEMON_ADDRESS)
        except OSError as error:
            raise WireError(f"another delayer is there, but does not answer: {error}") from error
        listener.listen()
        if os.fork() == 0:
            daemon.live_on(listener, DAEMON_LOG)


def _ask(request: Mapping[str, object]) -> Answer | None:
    """Send a request to the daemon and return its answer; None if it does not run."""
    message = json.dumps(request).encode()  # first: other clients wait from `connect` on
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(ANSWER_TIMEOUT_S)
        try:
            client.connect(DAEMON_ADDRESS)
            client.send(message)
            reply = client.recv(1 << 16)
        except TimeoutError as error:
            raise WireError(
                f"the delayer does not answer within {ANSWER_TIMEOUT_S:.0f} s"
            ) from error
        except ConnectionError:
            return None
    return parse(Answer, reply) if reply else None


def _last_words() -> str:
    lines = DAEMON_LOG.read_text().splitlines()
    return lines[-1] if lines else f"{DAEMON_LOG} is empty"
