"""The verdict strip: five answers, each with a link to the section with details. Pure."""

from dataclasses import dataclass

from cluster.reporting.run_data import BAD, GOOD, UNKNOWN, RunData
from cluster.reporting.sentences import bytes_words, last_test_words, seconds_words, tested_words

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
    who = run.tails[0].rank if run.tails else "see the notes above" if run.notes else ""
    return Verdict(
        "run", BAD, f"failed{took.replace(' in ', ' after ')}{f': {who}' if who else ''}", "failed"
    )


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
    return Verdict("result", GOOD if said else UNKNOWN, said or "none recorded", "learning")
