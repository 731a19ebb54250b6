"""Schedules from a user's YAML file: a list of events on links and nodes, each with its time.

- {at: 12s, profile: wan}                                      # other links, of the same topology and seed
- {at: 20s, link: node1:node3, both: true, delay_ms: 80, loss_pct: 2, for: 10s}
- {at: step 200, partition: [[node1], [node2, node3]], for: 10s}   # no packet between the sets
- {at: 60s, flap: node1:node2, down: 500ms, up: 2s, times: 5}  # cut in both directions, repeatedly
- {at: 70s, trace: lte.csv, link: node1:node2, both: true, loop: true, for: 60s}  # formats: cluster/links/traces.py
- {at: 80s, cpus: {node3: 0.25}, for: 20s}                     # a straggler: cores that a node may use
- {at: 90s, heal: true}                                        # everything as it was at the start

Seconds count from the start of the ranks; steps are those of rank 0 (only `node.train` counts steps). `for` counts from
the moment of `at`, even if the change came late; without it a change is permanent. `for`, `down` and `up` last 0.3 s at
least, except those of traces. Later changes override earlier ones, and changes of links override profiles; when a
change ends, the values below it apply again. The path of a trace is relative to the schedule's folder. While a trace
plays, it decides its links' values even if the profile changes; but a cut link stays cut.

Refused before anything starts are a schedule in which another event may change the same value of the same link while a
trace plays, and one of whose events, in their order, a link cannot take (cluster/schedule/forecast.py): as a jitter of
more than half of the delay.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cluster.base.errors import MOST_SHOWN, UsageError, shown, unknown
from cluster.base.yaml_file import named_from, read_yaml
from cluster.engine.resources import make_resource_request
from cluster.links.changes import LONGEST_S, make_changes, make_pairs, parse_link, parse_seconds
from cluster.links.profiles import load_profile
from cluster.links.traces import Playback, load_trace
from cluster.schedule.events import Event
from protocol.link import CUT_PCT, LIMITS

MOST_FLAPS = 10_000
# A change begins up to 0.05 s late (LOOK_S in cluster/schedule/runner.py) and takes some 0.2 s.
SHORTEST_S = 0.3
KINDS = {
    "profile": ("for",),
    "link": ("for", "both", *LIMITS),
    "partition": ("for",),
    "flap": ("down", "up", "times"),
    "trace": ("link", "both", "loop", "for"),
    "cpus": ("for",),
    "heal": (),
}


def load_schedule(path: Path, profiles: Path = Path()) -> tuple[Event, ...]:
    """Read a schedule.

    Args:
        path: of its file; paths of traces are relative to its folder.
        profiles: the folder that paths of profiles are relative to.

    Raises:
        UsageError: the file is missing or not YAML, or an item is not valid; the message names its number and key.
    """
    document = read_yaml(
        path,
        "write it as in cluster/schedule/schedule_file.py; for one of the learning rate: --lr-schedule",
    )
    return parse_schedule(document, f"{path}: ", path.parent, profiles)


def parse_schedule(
    document: object, source: str, traces: Path, profiles: Path
) -> tuple[Event, ...]:
    """Parse a schedule from its YAML list.

    Args:
        document: the list.
        source: the prefix of error messages.
        traces: the folder that paths of traces are relative to.
        profiles: the folder that paths of profiles are relative to.

    Raises:
        UsageError: an item is not valid; the message names its number and key.
    """
    if not isinstance(document, list):
        raise UsageError(f"{source}a schedule is a list", "- {at: 12s, profile: wan}")
    items = (
        _parse_item(item, _Folders(traces, profiles), f"{source}item {n}")
        for n, item in enumerate(document, start=1)
    )
    return tuple(itertools.chain.from_iterable(items))


class _Folders(NamedTuple):
    """The base folders of relative paths in a schedule."""

    traces: Path
    profiles: Path


def _parse_item(item: object, folders: _Folders, place: str) -> list[Event]:
    if not isinstance(item, dict):
        raise UsageError(f"{place} is {shown(item)}", "{at: 12s, profile: wan}")
    if "at" not in item:
        raise UsageError(f"{place}: at is missing", "at: 10s, or at: step 200")
    kinds = [kind for kind in KINDS if kind in item and not (kind == "link" and "trace" in item)]
    if len(kinds) != 1:
        raise UsageError(f"{place} has {len(kinds)} of {', '.join(KINDS)}", "name exactly one")
    known = ("at", kinds[0], *KINDS[kinds[0]])
    for key in item:
        if key not in known:
            raise unknown(f"key in {place}:", str(key), known)
    step, after_s = _parse_moment(item["at"], place)
    for_s = _for_s(item, place)
    words = ", ".join(f"{key}: {_in_words(value)}" for key, value in item.items())
    event = Event(words=words, after_s=after_s, step=step, for_s=for_s)
    try:
        return _events_of(kinds[0], item, event, folders, place)
    except UsageError as error:
        message = error.message if error.message.startswith(place) else f"{place}: {error.message}"
        raise UsageError(message, error.hint) from error


def _events_of(
    kind: str, item: Mapping[str, object], event: Event, folders: _Folders, place: str
) -> list[Event]:
    match kind:
        case "trace":
            return [
                replace(event, for_s=None, playback=_playback(item, event.for_s, folders.traces))
            ]
        case "profile":
            return [
                replace(
                    event,
                    profile=load_profile(named_from(folders.profiles, _word(item, "profile"))),
                )
            ]
        case "link":
            values = {field: _number(item[field], field) for field in LIMITS if field in item}
            changes = make_changes([_word(item, "link")], values, both=_flag(item, "both", False))
            return [replace(event, changes=tuple(changes))]
        case "partition":
            return [replace(event, partition=parse_partition(item["partition"]))]
        case "cpus":
            return [replace(event, cpus=parse_cpus(item["cpus"]))]
        case "flap":
            return _flaps(item, event, place)
    if item["heal"] is not True:
        raise UsageError(f"heal is {shown(item['heal'])}", "heal: true")
    return [replace(event, heal=True)]


def _playback(item: Mapping[str, object], for_s: float | None, folder: Path) -> Playback:
    if "link" not in item:
        raise UsageError("a trace needs a link", "link: node1:node2")
    trace = load_trace(folder / _word(item, "trace"))
    pairs = make_pairs([_word(item, "link")], both=_flag(item, "both", False))
    return Playback(trace, tuple(pairs), _flag(item, "loop", trace.repeats), for_s)


def _flag(item: Mapping[str, object], key: str, default: bool) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{key} is {shown(value)}", "true or false")
    return value


def _flaps(item: Mapping[str, object], event: Event, place: str) -> list[Event]:
    for key in ("down", "up", "times"):
        if key not in item:
            raise UsageError(f"{place}: {key} is missing", "down: 500ms, up: 2s, times: 5")
    down_s, up_s = (_lasting_s(item[key], f"{place}: {key}") for key in ("down", "up"))
    times = item["times"]
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= MOST_FLAPS:
        raise UsageError(f"{place}: times is {shown(times)}", "a whole number")
    begin_s = [round(event.after_s + n * (down_s + up_s), 6) for n in range(times)]
    if begin_s[-1] > LONGEST_S:
        raise UsageError(
            f"{place}: the last of {times} cuts begins after {begin_s[-1] / 3600:.0f} h",
            f"at most {LONGEST_S / 3600:.0f} h, a year",
        )
    src, dst = parse_link(_word(item, "flap"))
    cut = tuple(make_changes([f"{src}:{dst}"], {"loss_pct": CUT_PCT}, both=True))
    return [replace(event, after_s=at_s, for_s=down_s, changes=cut) for at_s in begin_s]


def _parse_moment(value: object, place: str) -> tuple[int | None, float]:
    """Parse a time as (step, seconds after it); step None: seconds after the start."""
    if found := re.fullmatch(r"\s*step\s+([0-9]{1,9})\s*", str(value) if _is_scalar(value) else ""):
        return int(found[1]), 0.0
    return None, _seconds(value, f"{place}: at", "10s, 500ms, 2m, or step 200; at most a year")


def parse_partition(value: object) -> tuple[tuple[str, ...], ...]:
    """Parse sets of nodes.

    Raises:
        UsageError: the value is not a list of sets, or a node is in two.
    """
    sets = value if isinstance(value, list) else []
    if len(sets) < 2 or not all(_are_nodes(nodes) for nodes in sets):
        raise UsageError(f"partition is {shown(value)}", "[[node1], [node2, node3]]")
    every = [node for nodes in sets for node in nodes]
    if len(set(every)) < len(every):
        raise UsageError(f"partition {shown(value)} has a node twice", "name each node in one set")
    return tuple(tuple(nodes) for nodes in sets)


def parse_cpus(value: object) -> Mapping[str, float | None]:
    """Parse numbers of cores by node, or for `all`.

    Raises:
        UsageError: the value is not valid.
    """
    if not isinstance(value, dict) or not value:
        raise UsageError(f"cpus is {shown(value)}", "{node3: 0.25}")
    return make_resource_request({str(node): number for node, number in value.items()}).cpus


def _seconds(value: object, place: str, hint: str = "") -> float:
    try:
        return round(parse_seconds(str(value) if _is_scalar(value) else ""), 6)
    except UsageError as error:
        raise UsageError(f"{place} is {shown(value)}", hint or error.hint) from error


def _for_s(item: Mapping[str, object], place: str) -> float | None:
    if "for" not in item:
        return None
    parse = _seconds if "trace" in item else _lasting_s  # the nodes themselves end a trace, at once
    return parse(item["for"], f"{place}: for")


def _lasting_s(value: object, place: str) -> float:
    """Parse how long a change lasts, or its absence."""
    seconds = _seconds(value, place)
    if seconds < SHORTEST_S:
        raise UsageError(
            f"{place} is {shown(value)}, and a change takes some 0.2 s",
            f"{SHORTEST_S * 1000:.0f}ms or longer; to change a link more quickly, play a trace",
        )
    return seconds


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _are_nodes(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(node, str) for node in value)


def _in_words(value: object) -> str:
    """Return a value as the schedule has it, shortened if it is long."""
    return value if isinstance(value, str) and len(value) <= MOST_SHOWN else shown(value)


def _word(item: Mapping[str, object], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise UsageError(f"{key} is {shown(value)}", "a name")
    return value


def _number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{field} is {shown(value)}", "a number")
    return float(value)
