"""A schedule as its user writes it, a YAML list: what happens to links and nodes during a run, and when.

    - {at: 12s, profile: wan}                                      # other links, of the same topology and seed
    - {at: 20s, link: node1:node3, both: true, delay_ms: 80, loss_pct: 2, for: 10s}
    - {at: step 200, partition: [[node1], [node2, node3]], for: 10s}   # no packet between the sets
    - {at: 60s, flap: node1:node2, down: 500ms, up: 2s, times: 5}  # cut in both directions, again and again
    - {at: 70s, trace: lte.csv, link: node1:node2, both: true, loop: true, for: 60s}   # formats: cluster/traces.py
    - {at: 80s, cpus: {node3: 0.25}, for: 20s}                     # a straggler: processors that a node may use
    - {at: 90s, heal: true}                                        # everything as it was at the start

Seconds count from the start of the ranks, steps are those of rank 0 (`node.train` alone counts them). Without `for` a
change stays. Later changes win over earlier ones, those of links over profiles; what ends gives way to what was below.
The path of a trace starts at the schedule's folder. As long as it lasts its values are the link's, whatever profile
comes meanwhile; but a link that is cut is cut. A schedule in which something else may change the same value of the same
link meanwhile is refused.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.changes import CUT_PCT, make_changes, make_pairs, parse_link, parse_seconds
from cluster.errors import UsageError, unknown
from cluster.link_limits import LIMITS
from cluster.node_limits import make_wish
from cluster.profiles import load_profile
from cluster.schedule import Event
from cluster.traces import Playback, load_trace
from cluster.yaml_file import read_yaml

KINDS = {
    "profile": ("for",),
    "link": ("for", "both", *LIMITS),
    "partition": ("for",),
    "flap": ("down", "up", "times"),
    "trace": ("link", "both", "loop", "for"),
    "cpus": ("for",),
    "heal": (),
}


def load_schedule(path: Path) -> tuple[Event, ...]:
    """Read a schedule.

    Raises:
        UsageError: no such file, no YAML, or an item that is none; the message names its number and key.
    """
    document = read_yaml(path, "cluster/schedule_file.py shows a schedule")
    if not isinstance(document, list):
        raise UsageError(f"{path}: a schedule is a list", "- {at: 12s, profile: wan}")
    items = (
        _parse_item(item, path.parent, f"{path}: item {n}")
        for n, item in enumerate(document, start=1)
    )
    return tuple(itertools.chain.from_iterable(items))


def _parse_item(item: object, folder: Path, place: str) -> list[Event]:
    if not isinstance(item, dict) or "at" not in item:
        raise UsageError(f"{place} is {item!r}", "{at: 12s, profile: wan}")
    kinds = [kind for kind in KINDS if kind in item and not (kind == "link" and "trace" in item)]
    if len(kinds) != 1:
        raise UsageError(f"{place} has {len(kinds)} of {', '.join(KINDS)}", "exactly one")
    known = ("at", kinds[0], *KINDS[kinds[0]])
    for key in item:
        if key not in known:
            raise unknown(f"key in {place}:", str(key), known)
    step, after_s = _parse_moment(item["at"], place)
    for_s = _seconds(item["for"], f"{place}: for") if "for" in item else None
    words = ", ".join(f"{key}: {value}" for key, value in item.items())
    event = Event(words=words, after_s=after_s, step=step, for_s=for_s)
    try:
        return _events_of(kinds[0], item, event, folder, place)
    except UsageError as error:
        message = error.message if error.message.startswith(place) else f"{place}: {error.message}"
        raise UsageError(message, error.hint) from error


def _events_of(
    kind: str, item: Mapping[str, Any], event: Event, folder: Path, place: str
) -> list[Event]:
    match kind:
        case "trace":
            return [replace(event, for_s=None, playback=_playback(item, event.for_s, folder))]
        case "profile":
            return [replace(event, profile=load_profile(str(item["profile"])))]
        case "link":
            values = {field: _number(item[field], field) for field in LIMITS if field in item}
            changes = make_changes([str(item["link"])], values, both=_flag(item, "both", False))
            return [replace(event, changes=tuple(changes))]
        case "partition":
            return [replace(event, partition=_parse_partition(item["partition"]))]
        case "cpus":
            return [replace(event, cpus=_parse_cpus(item["cpus"]))]
        case "flap":
            return _flaps(item, event, place)
    if item["heal"] is not True:
        raise UsageError(f"heal is {item['heal']!r}", "heal: true")
    return [replace(event, heal=True)]


def _playback(item: Mapping[str, Any], for_s: float | None, folder: Path) -> Playback:
    if "link" not in item:
        raise UsageError("a trace is of a link", "link: node1:node2")
    trace = load_trace(folder / str(item["trace"]))
    pairs = make_pairs([str(item["link"])], both=_flag(item, "both", False))
    return Playback(trace, tuple(pairs), _flag(item, "loop", trace.repeats), for_s)


def _flag(item: Mapping[str, Any], key: str, default: bool) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{key} is {value!r}", "true or false")
    return value


def _flaps(item: Mapping[str, Any], event: Event, place: str) -> list[Event]:
    for key in ("down", "up", "times"):
        if key not in item:
            raise UsageError(f"{place}: {key} is missing", "down: 500ms, up: 2s, times: 5")
    down_s, up_s = (_seconds(item[key], f"{place}: {key}") for key in ("down", "up"))
    times = item["times"]
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= 10_000:
        raise UsageError(f"{place}: times is {times!r}", "a whole number")
    src, dst = parse_link(str(item["flap"]))
    cut = tuple(make_changes([f"{src}:{dst}"], {"loss_pct": CUT_PCT}, both=True))
    return [
        replace(event, after_s=event.after_s + n * (down_s + up_s), for_s=down_s, changes=cut)
        for n in range(times)
    ]


def _parse_moment(value: object, place: str) -> tuple[int | None, float]:
    """A moment as (step, seconds after it); step None: seconds after the start."""
    words = str(value).split()
    if len(words) == 2 and words[0] == "step" and words[1].isdigit():
        return int(words[1]), 0.0
    return None, _seconds(value, f"{place}: at")


def _parse_partition(value: object) -> tuple[tuple[str, ...], ...]:
    sets = value if isinstance(value, list) else []
    if len(sets) < 2 or not all(isinstance(nodes, list) and nodes for nodes in sets):
        raise UsageError(f"partition is {value!r}", "[[node1], [node2, node3]]")
    every = [str(node) for nodes in sets for node in nodes]
    if len(set(every)) < len(every):
        raise UsageError(f"partition {value!r} has a node twice", "each in one set")
    return tuple(tuple(str(node) for node in nodes) for nodes in sets)


def _parse_cpus(value: object) -> Mapping[str, float | None]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"cpus is {value!r}", "{node3: 0.25}")
    return make_wish({str(node): number for node, number in value.items()}).cpus


def _seconds(value: object, place: str) -> float:
    try:
        return parse_seconds(str(value))
    except UsageError as error:
        raise UsageError(f"{place} is {value!r}", error.hint) from error


def _number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{field} is {value!r}", "a number")
    return float(value)
