"""The verdict strip: five answers, each with a link to the section with details. Pure."""

import re
from dataclasses import dataclass

from cluster.reporting.run_data import BAD, GOOD, UNKNOWN, RunData
from cluster.reporting.sentences import (
    bytes_words,
    last_test_words,
    not_finite_since,
    seconds_words,
    tested_words,
)

REASON = re.compile(r"[:;(]")  # after how a rank ended comes why, which is too long for a verdict
NEAR = 0.05  # as in cluster/accounting/wire_bytes.py


@dataclass(frozen=True)
class Verdict:
    """One answer.

    Attributes:
        question: one word.
        state: GOOD, BAD or UNKNOWN.
        answer: a few words.
        section: key of the section with details.
    """

    question: str
    state: str
    answer: str
    section: str


def verdicts(run: RunData) -> list[Verdict]:
    """Return the verdicts, in the order in which a reader's doubts arise."""
    return [
        _ended(run),
        Verdict("links", run.proof.state, run.proof.words, "links"),
        _host(run),
        _bytes(run),
        _result(run),
    ]


def _ended(run: RunData) -> Verdict:
    took = f" in {seconds_words(run.wall_s)}" if run.wall_s is not None else ""
    if run.status == "done":
        return Verdict("run", GOOD, f"done{took}", "seconds")
    if run.status == "open":
        return Verdict("run", BAD, "no recorded end", "failed")
    who = _who_failed(run)
    return Verdict(
        "run", BAD, f"failed{took.replace(' in ', ' after ')}{f': {who}' if who else ''}", "failed"
    )


def _who_failed(run: RunData) -> str:
    """Name the root cause, else the only rank that failed; '' if nothing is known."""
    if run.root_cause is not None:
        cause = f"{run.root_cause.rank} {run.root_cause.words}".strip()
        return REASON.split(cause)[0].rstrip()
    if run.failure or not run.tails:
        return "see the notes above" if run.notes else ""
    return run.tails[0].rank if run.failed == 1 else "several ranks"


def _host(run: RunData) -> Verdict:
    if run.limits is None:
        return Verdict("host", UNKNOWN, "nobody knows", "reproduce")
    if run.limits:
        return Verdict("host", BAD, "was the limit", "host")
    return Verdict("host", GOOD, "not the limit", "reproduce")


def _bytes(run: RunData) -> Verdict:
    figures = run.bytes
    if figures.off:
        return Verdict("bytes", BAD, f"do not reconcile: {', '.join(figures.off[:2])}", "links")
    if figures.ratio is not None:
        is_near = abs(figures.ratio - 1) <= NEAR
        words = "reconcile" if is_near else "too few, or too many lost, to tell"
        return Verdict(
            "bytes", GOOD if is_near else UNKNOWN, f"{words} ({figures.ratio:.3f})", "links"
        )
    total = f", {bytes_words(figures.total)} carried" if figures.total else ""
    return Verdict("bytes", UNKNOWN, f"nothing to compare with{total}", "links")


def _result(run: RunData) -> Verdict:
    said = tested_words(run) or last_test_words(run)
    state = BAD if not_finite_since(run)[0] else GOOD if said else UNKNOWN
    return Verdict("result", state, said or "none recorded", "learning")
