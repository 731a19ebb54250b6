"""Joins the ranks' records of their parts into whole collectives (docs/formats.md). Pure.

All ranks take part in the same all-reduces, all-gathers and all-to-alls, in the same order: in each step, the k-th of
one kind and purpose of one rank is the k-th of the others. An exchange concerns only ranks that send to one another:
the k-th that one sends to another in a step is the k-th that the other receives from it. Where not all have equally
many in a step, lines are missing, and which is not known: then those of this step are not joined.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from cluster.accounting.tcp_timing import SocketState, Window
from protocol.collectives import CollectiveLine, TcpState


@dataclass(frozen=True)
class Part:
    """What one rank did in one collective. Times are Unix times.

    Attributes:
        step: the step in which the rank began it; 0 before the first.
        to: payload bytes by receiving rank.
        messages: the number of messages to each of them.
        sources: the ranks that it waits for, if it is an exchange.
        hidden: whether it was done before the rank waited for it: some time before `ended`.
        sizes_vary: whether others of its kind and purpose differ in size, step by step.
        mean_size: of all of these, if so; `put_together` sets it.
        tcp: state of the connections to the receivers, by rank; ranks that share a node have the same.
    """

    rank: int
    step: int
    kind: str
    purpose: str
    size: int
    entered: float
    ended: float
    waited_s: float
    hidden: bool
    to: Mapping[int, int]
    messages: int
    sources: tuple[int, ...]
    tcp: Mapping[int, SocketState] = field(default_factory=dict)
    sizes_vary: bool = False
    mean_size: int | None = None


@dataclass(frozen=True)
class Collective:
    """One collective: the parts whose end counts, and all others that had to arrive first.

    In an exchange, each rank's own part is one collective; its `others` are those that it sends to or receives from.
    """

    parts: tuple[Part, ...]
    others: tuple[Part, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """Kind, purpose, size; the mean size of all that vary in size."""
        part = self.parts[0]
        return part.kind, part.purpose, part.size if part.mean_size is None else part.mean_size

    @property
    def tests(self) -> bool:
        """Whether it belongs to a test: its seconds are in the ranks' bucket `eval`, not in `comm`."""
        return self.parts[0].purpose == "eval"

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """All parts that have to be there before it can end."""
        return *self.parts, *self.others

    @cached_property
    def complete_at(self) -> float:
        """The time when the last rank arrived."""
        return max(part.entered for part in self.all_parts)

    @property
    def hidden(self) -> bool:
        """Whether its end is unknown."""
        return any(part.hidden for part in self.parts)

    def waiting_s(self, part: Part) -> float:
        """Return how long a rank only waited for another that had not arrived yet.

        Its waiting after that is the transfer: a link is at work, or a packet is in flight.
        """
        waited_since = part.ended - part.waited_s
        return max(0.0, min(part.ended, self.complete_at) - waited_since)

    def transfer_s(self, part: Part) -> float:
        """Return how long a rank waited for others' data: less than that took if it computed meanwhile."""
        return max(0.0, part.waited_s - self.waiting_s(part))

    @property
    def replay_steps(self) -> int:
        """The number of messages in a replay: of each rank as many as of the one that names most, true or not."""
        return len(self.parts) * max(part.messages for part in self.parts)


def make_part(rank: int, line: CollectiveLine, addresses: Sequence[str] = ()) -> Part:
    """Return the part that a line of a rank's collectives.jsonl describes.

    Args:
        rank: the rank.
        line: of that file.
        addresses: of the ranks' nodes, by rank; without them the TCP state is unknown.
    """
    homes = {peer: addresses[peer] for peer in line.to if peer < len(addresses)}
    return Part(
        rank=rank,
        step=line.step,
        kind=line.kind,
        purpose=line.purpose,
        size=line.bytes,
        entered=line.time,
        ended=line.time + line.done_s,
        waited_s=line.waited_s,
        hidden=line.hidden,
        to=line.to,
        messages=line.messages,
        sources=tuple(line.sources),
        tcp={p: _socket_state(line.tcp[home]) for p, home in homes.items() if home in line.tcp},
        sizes_vary=line.sizes_vary,
    )


def _socket_state(told: TcpState) -> SocketState:
    ssthresh = math.inf if told.ssthresh_bytes is None else told.ssthresh_bytes
    window = Window(told.window_bytes, ssthresh)
    return SocketState(window, told.idle_s, told.rto_s, told.sent_again)


def by_key(collectives: Iterable[Collective]) -> dict[tuple[str, str, int], list[Collective]]:
    """Group collectives by kind, purpose and size."""
    groups: dict[tuple[str, str, int], list[Collective]] = {}
    for collective in collectives:
        groups.setdefault(collective.key, []).append(collective)
    return groups


def put_together(parts: Sequence[Sequence[Part]]) -> list[Collective]:
    """Join every rank's parts, in the order in which they began, into collectives."""
    means = _mean_sizes(part for own in parts for part in own if part.sizes_vary)
    in_order = [
        [
            replace(part, mean_size=means[part.kind, part.purpose]) if part.sizes_vary else part
            for part in sorted(own, key=lambda part: part.entered)
        ]
        for own in parts
    ]
    return [*_of_all(in_order), *_exchanges(in_order)]


def _mean_sizes(parts: Iterable[Part]) -> dict[tuple[str, str], int]:
    """Return the mean size by kind and purpose."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for part in parts:
        sizes.setdefault((part.kind, part.purpose), []).append(part.size)
    return {group: round(sum(some) / len(some)) for group, some in sizes.items()}


def _of_all(parts: Sequence[Sequence[Part]]) -> Iterator[Collective]:
    """Yield the collectives of all ranks; without those that a dead rank left no part of.

    If the k-th are not of one kind and step, lines are missing: then those of a step are left out in which not all have
    equally many.
    """
    own = [[part for part in mine if part.kind != "exchange"] for mine in parts]
    in_turn = list(zip(*own, strict=False))
    if all(len({_place(part) for part in together}) == 1 for together in in_turn):
        yield from map(Collective, in_turn)
        return
    placed = [_by_place(mine) for mine in own]
    for place in placed[0]:
        together = [mine.get(place, []) for mine in placed]
        if len({len(some) for some in together}) == 1:
            yield from map(Collective, zip(*together, strict=True))


def _place(part: Part) -> tuple[int, str, str]:
    return part.step, part.kind, part.purpose


def _by_place(parts: Iterable[Part]) -> dict[tuple[int, str, str], list[Part]]:
    """Group the parts of one rank by step, kind and purpose."""
    groups: dict[tuple[int, str, str], list[Part]] = {}
    for part in parts:
        groups.setdefault(_place(part), []).append(part)
    return groups


def _exchanges(parts: Sequence[Sequence[Part]]) -> Iterator[Collective]:
    sent: dict[tuple[int, int], list[Part]] = {}
    heard: dict[tuple[int, int], list[Part]] = {}
    for part in (part for mine in parts for part in mine if part.kind == "exchange"):
        for peer in part.to:
            sent.setdefault((part.rank, peer), []).append(part)
        for peer in part.sources:
            heard.setdefault((peer, part.rank), []).append(part)
    # By identity, so that a part that both sends to another and receives from it is added only once.
    others: dict[int, dict[int, Part]] = {}
    for pair in sent.keys() & heard.keys():
        for sender, hearer in _pairs(sent[pair], heard[pair]):
            others.setdefault(id(hearer), {})[id(sender)] = sender
            others.setdefault(id(sender), {})[id(hearer)] = hearer
    for part in (part for mine in parts for part in mine if part.kind == "exchange"):
        yield Collective((part,), tuple(others.get(id(part), {}).values()))


def _pairs(sent: Sequence[Part], heard: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    """Yield which part sent what which other received; if lines are missing, only of steps that have all."""
    if len(sent) == len(heard):
        yield from zip(sent, heard, strict=True)
        return
    senders, hearers = _by_place(sent), _by_place(heard)
    for place in senders.keys() & hearers.keys():
        if len(senders[place]) == len(hearers[place]):
            yield from zip(senders[place], hearers[place], strict=True)
