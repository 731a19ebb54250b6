"""Who made a run fail, and the ends of the logs that tell of it."""

from collections.abc import Sequence
from pathlib import Path

from cluster.base.files import last_lines
from cluster.reporting.run_data import Rank, RootCause, Tail, how_it_ended
from cluster.reporting.values import Record, lines, record, word

MOST_TAILS, MOST_TAIL_LINES, MOST_TAIL_LETTERS = 6, 25, 8_000
MOST_WORDS = 500
RANKS_DONE = "the ranks are done, but "  # how cluster.run.runner begins to say what else failed
IN_FORCE_UNKNOWN = "whether the links were in force to the end is not known"
STOPPED = (-15, -2)  # signals with which we stop ranks


def root_cause_of(summary: Record) -> RootCause | None:
    """Return the root cause as the launch found it; None if there is none, or an older version wrote the summary."""
    found = record(summary.get("root_cause"))
    words = word(found.get("words"), MOST_WORDS)
    return RootCause(word(found.get("rank"), 64), words) if words else None


def failure_of(summary: Record) -> str:
    """Return why a launch failed although its ranks were done; '' if it did not, or if ranks failed."""
    return "" if summary.get("status") == "failed" else word(summary.get("failure"), MOST_WORDS)


def lost_words(lost: str) -> str:
    """Say that links were lost; or, if the nodes did not tell at the end, that it is not known whether they were."""
    return lost if lost.startswith(IN_FORCE_UNKNOWN) else f"links were lost: {lost}"


def failed_ranks(
    ranks: Sequence[Rank], summary: Record, essential: object, cause: RootCause | None
) -> list[Rank]:
    """Return the ranks that failed by themselves, else those we stopped; without a summary, all.

    The root cause comes first, then essential ranks. `essential`: their numbers; if it is no list, all are.
    """
    failed = [rank for rank in ranks if rank.exit_code not in (None, 0)] if summary else list(ranks)
    root = cause.rank if cause else ""
    own = [rank for rank in failed if rank.exit_code not in STOPPED or rank.name == root]
    spared = (
        {one.name for n, one in enumerate(ranks) if n not in essential}
        if isinstance(essential, list)
        else ()
    )
    return sorted(own or failed, key=lambda one: (one.name != root, one.name in spared))


def read_tails(folder: Path, failed: Sequence[Rank], cause: RootCause | None) -> list[Tail]:
    """Return the ends of the logs of the first of these ranks."""
    words = {cause.rank: cause.words} if cause else {}
    return [
        Tail(
            rank.name,
            words.get(rank.name) or how_it_ended(rank.exit_code),
            _tail(folder / "logs" / f"{rank.name}.log"),
        )
        for rank in failed[:MOST_TAILS]
    ]


def _tail(path: Path) -> tuple[str, ...]:
    text = "\n".join(last_lines(path, MOST_TAIL_LINES))
    return tuple(lines(text[-MOST_TAIL_LETTERS:], MOST_TAIL_LETTERS).split("\n")) if text else ()
