"""What a schedule will make of the links, known before the run. Pure.

Each link is followed by itself through the events that concern it, in the order in which `cluster.schedule.runner`
executes them: by time, and of the same moment ends before beginnings. Losses and cuts are left out, because any link
may have them.

The order is unknown if events count from different moments: from the start and from a step, or from several steps if
one lasts for a time. Then an event is refused only if the link can take it neither as it is at the start or in a
profile, nor after any single one of the other events: what remains may still fail in the run.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from cluster.base.errors import UsageError
from cluster.base.spec import Node
from cluster.links.changes import changed_link
from cluster.links.expected import Expected
from cluster.links.link_spec import link_plans
from cluster.links.profiles import Profile
from cluster.links.traces import Trace
from cluster.links.underlay import Underlay
from cluster.schedule.events import Event
from cluster.shaping.link_state import LinkState, expected_of, planned_link_state
from protocol.link import Link, Pair


class _Network(NamedTuple):
    """All links before events change single ones: at the start, or of a profile."""

    links: Mapping[Pair, Link]
    expected: Expected


Networks = Mapping[Profile | None, _Network]
"""By profile; None: at the start."""


def slowest_links(
    events: Sequence[Event], link_state: LinkState, nodes: Sequence[Node]
) -> list[Link]:
    """Return each link as slow as a schedule ever makes it: its longest delay and queue, and its lowest rate.

    Traces count with their means. Rates are capped by uplinks and downlinks.

    Args:
        events: the schedule; `cluster.schedule.events.check_events` has checked it.
        link_state: the links at the start.
        nodes: the nodes of the cluster.

    Raises:
        UsageError: a link cannot become as an event asks; names the event.
    """
    spec = link_state.link_spec
    underlay = spec.underlay if spec else Underlay()
    networks = _networks(events, link_state, nodes)
    found = _events_by_link(events, link_state.links)
    return [
        _slowest(list(_versions(ends, some, networks, underlay))) for ends, some in found.items()
    ]


def _networks(events: Sequence[Event], link_state: LinkState, nodes: Sequence[Node]) -> Networks:
    found: dict[Profile | None, _Network] = {None: _network(link_state)}
    spec = link_state.link_spec
    for event in events:
        if event.profile is not None and event.profile not in found and spec is not None:
            with _named(event.words):
                plans = link_plans(nodes, replace(spec, profile=event.profile))
            found[event.profile] = _network(planned_link_state(plans))
    return found


def _network(link_state: LinkState) -> _Network:
    return _Network({link.ends: link for link in link_state.links}, expected_of(link_state))


def _events_by_link(events: Sequence[Event], links: Sequence[Link]) -> dict[Pair, list[Event]]:
    """Return the events that concern each link; profiles and heals concern all."""
    found: dict[Pair, list[Event]] = {link.ends: [] for link in links}
    for event in events:
        own = {(one.src, one.dst) for one in event.changes if set(one.values) - {"loss_pct"}}
        own.update(event.playback.pairs if event.playback else ())
        for ends in found if event.profile or event.heal else own:
            found[ends].append(event)
    return found


def _versions(
    ends: Pair, events: Sequence[Event], networks: Networks, underlay: Underlay
) -> Iterator[Link]:
    """Yield a link at the start and as each event leaves it."""
    if _is_ordered(events):
        yield from _versions_in_order(ends, events, networks, underlay)
        return
    for network in networks.values():
        yield network.expected.as_limited(network.links[ends])
    for event in events:
        yield _version_anyhow(ends, event, events, networks, underlay)


def _is_ordered(events: Sequence[Event]) -> bool:
    """Return whether it is known in which order these events begin and end."""
    if len({event.step for event in events}) <= 1:
        return True
    return all(e.step is not None and not e.after_s and e.until_s == math.inf for e in events)


def _versions_in_order(
    ends: Pair, events: Sequence[Event], networks: Networks, underlay: Underlay
) -> Iterator[Link]:
    for words, lasting in (("", []), *_moments(events)):
        profiles = [e.profile for e in lasting if e.profile is not None and e.profile in networks]
        network = networks[profiles[-1] if profiles else None]
        with _named(words):
            link = _made(network.links[ends], lasting, underlay)
        yield network.expected.as_limited(link)


def _moments(events: Sequence[Event]) -> Iterator[tuple[str, list[Event]]]:
    """Yield each beginning and each moment of ends, in words, with the events then in force, the latest last."""
    actions = [((event.step or 0, event.after_s, True), event) for event in events]
    actions += [((e.step or 0, e.until_s, False), e) for e in events if e.until_s < math.inf]
    moment = itemgetter(0)
    lasting: list[Event] = []
    for (_, _, is_beginning), group in itertools.groupby(sorted(actions, key=moment), key=moment):
        some = [event for _, event in group]
        if not is_beginning:
            lasting = [event for event in lasting if event not in some]
            yield f"over: {some[0].words}", lasting
            continue
        for event in some:
            lasting = [] if event.heal else [*lasting, event]
            yield event.words, lasting


def _version_anyhow(
    ends: Pair, event: Event, others: Sequence[Event], networks: Networks, underlay: Underlay
) -> Link:
    """Return a link as an event leaves it: alone, or else after the first other event that lets it.

    Raises:
        UsageError: there is none, and why not alone.
    """
    refusals = []
    for before in ((), *((other,) for other in others)):
        for network in networks.values():
            try:
                link = _made(network.links[ends], (*before, event), underlay)
            except UsageError as error:
                refusals.append(error)
            else:
                return network.expected.as_limited(link)
    with _named(event.words):
        raise refusals[0]


def _made(link: Link, events: Sequence[Event], underlay: Underlay) -> Link:
    """Return a link with the changes of events in force, and the means of their traces.

    Raises:
        UsageError: it cannot become so; as `changed_link` and `Trace.checked`.
    """
    changes = [change for event in events for change in event.changes]
    link = hardest = changed_link(link, changes, underlay)
    for event in events:
        if event.playback is not None and link.ends in event.playback.pairs:
            hardest = event.playback.trace.checked(hardest)
            link = _under_means(link, event.playback.trace)
    return link


def _under_means(link: Link, trace: Trace) -> Link:
    rate_mbyte_s = trace.mean("rate_mbyte_s") if "rate_mbyte_s" in trace.fields else 0.0
    delay_ms = trace.mean("delay_ms") if "delay_ms" in trace.fields else link.delay_ms
    return link._replace(rate_mbyte_s=rate_mbyte_s or link.rate_mbyte_s, delay_ms=delay_ms)


def _slowest(versions: Sequence[Link]) -> Link:
    slow = max(versions, key=lambda link: link.delay_ms + link.buffer_ms)
    return slow._replace(rate_mbyte_s=min(link.rate_mbyte_s for link in versions))


@contextmanager
def _named(words: str) -> Iterator[None]:
    """Put the event at fault in front of a refusal."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{words}: {error.message}", error.hint) from None
