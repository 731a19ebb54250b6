"""Notes of a report: what failed, what was lost or left out, and what its figures do not tell."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.accounting.clocks import HostClock, read_clocks
from cluster.accounting.collectives import Collective, by_key
from cluster.base.wording import first_names
from cluster.reporting.failures import RANKS_DONE, failure_of, lost_words
from cluster.reporting.run_data import CollectiveRow
from cluster.reporting.values import (
    MOST_CONTRACT_BYTES,
    MOST_JSON_BYTES,
    Record,
    read_json,
    record,
    word,
    words,
)
from protocol.collectives import MOST_COLLECTIVES

MOST_LIVE_NOTES, MOST_NAMED = 10, 5
SEVERAL_CLOCKS = (
    "the nodes are on several machines: who came late, and waiting as opposed to moving bytes, is only as exact as the "
    "clocks of these"
)
MACHINES = "the nodes are on several machines, whose clocks"


def notes_of(folder: Path, summary: Record, contract: Record, config: Record) -> list[str]:
    """Return which files cannot be read, what failed or was lost, and what the launch noted while it went on."""
    notes = list(words(record(read_json(folder / "live.json")).get("notes"), MOST_LIVE_NOTES))
    limits = (
        ("summary.json", summary, MOST_JSON_BYTES),
        ("contract.json", contract, MOST_CONTRACT_BYTES),
    )
    for name, found, most_bytes in limits:
        if (folder / name).exists() and not found:
            notes.append(f"{name} cannot be read: cut short, or larger than {most_bytes >> 20} MiB")
    if failure := word(summary.get("failure"), 500):
        # Older versions wrote this also where ranks had failed.
        notes.append(failure if failure_of(summary) else failure.removeprefix(RANKS_DONE))
    elif lost := word(summary.get("links_lost"), 500):
        notes.append(lost_words(lost))
    if changed := word(summary.get("links_changed"), 500):
        then = "measured for the beginning of the run only; then"
        if summary.get("verified") is False:
            then = "not as asked throughout"
        notes.append(f"links were {then}: {changed}")
    if missing := record(summary.get("not_fetched")):
        notes.append(f"not fetched of: {', '.join(word(name, 64) for name in list(missing)[:20])}")
    hosts = {node: word(host, 64) for node, host in record(config.get("node_hosts")).items()}
    clocks = read_clocks(folder)
    return [*notes, _clocks_note(hosts, clocks)] if len(set(hosts.values())) > 1 else notes


def _clocks_note(hosts: Mapping[str, str], clocks: Mapping[str, HostClock]) -> str:
    """Return how exact times of nodes on several hosts are; `hosts` are by node."""
    if not clocks.keys() >= hosts.keys():
        return SEVERAL_CLOCKS
    known = list({host: clocks[node] for node, host in hosts.items()}.values())
    ahead_s = [clock.ahead_s for clock in known]
    left_s = sum(sorted(clock.left_s for clock in known)[-2:])  # between any two of them
    if not any(clock.correction_s for clock in known):
        return f"{MACHINES} agreed to within {left_s:.3f} s when the run began"
    return (
        f"{MACHINES} differed by up to {max(ahead_s) - min(ahead_s):.3g} s when the run began: times are corrected to "
        f"within {left_s:.3f} s, unless a clock was set or drifted since"
    )


def first_shown(what: str, total: int, most: int) -> list[str]:
    """Return a note if not all are shown."""
    return [f"of {total:,} {what} the first {most:,} are shown"] if total > most else []


def metrics_notes(cut: Sequence[str], most: int) -> list[str]:
    """Return a note that of these ranks only so many lines of metrics are shown."""
    who = first_names(cut, MOST_NAMED, "ranks")
    return [f"of {who} the first {most} lines of metrics are shown"] if cut else []


def cut_notes(
    rows: Sequence[CollectiveRow], timed: Sequence[Collective], parts: int, most_parts: int
) -> list[str]:
    """Return what is known of the beginning of a run only.

    Args:
        rows: how many collectives there were, as ranks counted them.
        timed: those that have lines of their own.
        parts: of the timeline: each rank has one in each collective.
        most_parts: the number of those that are shown.
    """
    notes = []
    count, lines = _counted_and_timed(rows, timed)
    if 0 < lines < count:
        first = "the first " if count > MOST_COLLECTIVES else ""
        notes.append(
            f"of {count:,} collectives {first}{lines:,} were timed one by one: attribution, causes, savings and the "
            "timeline are of these"
        )
    if parts > most_parts:
        notes.append(
            f"the timeline shows the first {most_parts:,} of {parts:,} parts in collectives"
        )
    return notes


def _counted_and_timed(
    rows: Sequence[CollectiveRow], timed: Sequence[Collective]
) -> tuple[int, int]:
    """Return how many collectives the rank had that lacks most lines, and how many of them have a line.

    Rows are compared one by one: not every rank has exchanges of every size, nor equally many of each.
    """
    counts = {(row.kind, row.purpose, row.size_bytes): row.count for row in rows}
    lines, lacking = Counter[int](), Counter[int]()
    for key, group in by_key(timed).items():
        own = Counter(part.rank for one in group for part in one.parts)
        lines.update(own)
        lacks = max(0, counts.get(key, 0) - max(own.values()))
        lacking.update(dict.fromkeys(own, lacks))
    rank = max(lines, key=lambda rank: (lacking[rank], lines[rank]), default=0)
    return lines[rank] + lacking[rank], lines[rank]
