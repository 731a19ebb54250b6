"""Notes of a report: what failed, what was lost or left out, and what its figures do not tell."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cluster.accounting.collectives import Collective
from cluster.reporting.run_data import CollectiveRow
from cluster.reporting.values import MOST_JSON_BYTES, Record, read_json, record, word, words

MOST_LIVE_NOTES = 10
SEVERAL_CLOCKS = (
    "the nodes are on several machines: who came late, and waiting as opposed to moving bytes, is only as exact as the "
    "clocks of these"
)


def notes_of(folder: Path, summary: Record, config: Record) -> list[str]:
    """Return which files cannot be read, what failed or was lost, and what the launch noted while it went on."""
    notes = list(words(record(read_json(folder / "live.json")).get("notes"), MOST_LIVE_NOTES))
    for name in ("summary.json", "contract.json"):
        path = folder / name
        if path.exists() and not record(read_json(path)):
            notes.append(
                f"{name} cannot be read: cut short, or larger than {MOST_JSON_BYTES >> 20} MiB"
            )
    if failure := word(summary.get("failure"), 500):
        notes.append(failure)
    elif lost := word(summary.get("links_lost"), 500):
        notes.append(f"links that were lost: {lost}")
    if changed := word(summary.get("links_changed"), 500):
        notes.append(f"links were measured for the beginning of the run only; then: {changed}")
    if missing := record(summary.get("not_fetched")):
        notes.append(f"not fetched of: {', '.join(word(name, 64) for name in list(missing)[:20])}")
    hosts = {word(host, 64) for host in record(config.get("node_hosts")).values()}
    return [*notes, SEVERAL_CLOCKS] if len(hosts) > 1 else notes


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
    lines = max(Counter(p.rank for one in timed for p in one.parts).values(), default=0)
    count = sum(row.count for row in rows)
    if 0 < lines < count:
        notes.append(
            f"of {count:,} collectives the first {lines:,} were timed one by one: attribution, causes, savings and the "
            "timeline are of these"
        )
    if parts > most_parts:
        notes.append(
            f"the timeline shows the first {most_parts:,} of {parts:,} parts in collectives"
        )
    return notes
