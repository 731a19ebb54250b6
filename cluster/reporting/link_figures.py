"""The links of a run: what was asked for, what was measured, and what they carried. Pure."""

import sys
from collections.abc import Iterator, Sequence

from cluster.base.wording import counted, first_names
from cluster.reporting.failures import IN_FORCE_UNKNOWN
from cluster.reporting.run_data import BAD, GOOD, UNKNOWN, LinkFigures, Proof
from cluster.reporting.values import Record, number, numbers, record, records, word, words

MOST_LINKS = 40_000  # 199 nodes, each linked to all others, have 39,402
MOST_NAMED = 5
BROKEN, UNDECIDED, HOLDS = "broken", "undecided", "holds"
Failing = tuple[Sequence[str], Sequence[str]]
NOT_SHAPED = "No links were shaped: the nodes talked as fast as this machine does."


def read_links(contract: Record, asked: object, carried: Record) -> list[LinkFigures]:
    """Return all links, as measured in contract.json, and those of links.json that it lacks."""
    by_link = numbers(carried.get("links"), sys.maxsize)
    proved = [_of_contract(row, by_link) for row in records(contract.get("links"), sys.maxsize)]
    known = {link.name for link in proved}
    plain = [_of_link(row, by_link) for row in records(asked, sys.maxsize)]
    found = [*proved, *(link for link in plain if link.name not in known)]
    return [link for link in found if link.src and link.dst]


def _of_contract(row: Record, carried: dict[str, float]) -> LinkFigures:
    link, expected = record(row.get("link")), record(row.get("expected"))
    measured, plain = record(row.get("measured")), _of_link(link, carried)
    broken, undecided = words(row.get("broken")), words(row.get("undecided"))
    return LinkFigures(
        *(plain.src, plain.dst, plain.asked_mbyte_s, plain.delay_ms),
        *(plain.loss_pct, plain.jitter_ms),
        "broken" if broken else "undecided" if undecided else "holds",
        (*broken, *undecided),
        number(expected.get("goodput_mbyte_s")),
        number(measured.get("goodput_mbyte_s")),
        number(expected.get("rtt_ms")),
        number(measured.get("rtt_ms")),
        plain.carried_bytes,
    )


def _of_link(link: Record, carried: dict[str, float]) -> LinkFigures:
    src, dst = word(link.get("src"), 64), word(link.get("dst"), 64)
    return LinkFigures(
        src,
        dst,
        number(link.get("rate_mbyte_s")),
        number(link.get("delay_ms")),
        number(link.get("loss_pct")),
        number(link.get("jitter_ms")),
        carried_bytes=carried.get(f"{src}->{dst}"),
    )


def proof_of(summary: Record, contract: Record, links: Sequence[LinkFigures]) -> Proof:
    """Return whether the links are as asked, and were so until the end of the run."""
    if not links:
        return Proof(UNKNOWN, "not shaped", NOT_SHAPED)
    broken, undecided = (_failing(links, contract, verdict) for verdict in (BROKEN, UNDECIDED))
    if any(broken) or contract.get("broken") is True:
        said = (
            _listed(*broken) or word(contract.get("verdict")) or "what, the contract does not say"
        )
        return Proof(BAD, f"{_count(broken, len(links))} broken", f"Not as asked: {said}.")
    if lost := word(summary.get("links_lost"), 500):
        if lost.startswith(IN_FORCE_UNKNOWN):
            return Proof(UNKNOWN, "not known at the end", f"{lost[0].upper()}{lost[1:]}.")
        return Proof(BAD, "lost during the run", f"Not all in force at the end: {lost}.")
    if changed := word(summary.get("links_changed"), 500):
        said = "As asked at the beginning of the run only; then"
        if summary.get("verified") is False:
            said = "Not as asked throughout"
        return Proof(BAD, "changed during the run", f"{said}: {changed}.")
    if any(undecided) or contract.get("decided") is False or word(summary.get("undecided")):
        said = f"The host was too busy to decide about {_listed(*undecided) or 'some of them'}."
        return Proof(UNKNOWN, f"{_count(undecided, len(links))} undecided", said)
    if not contract and summary.get("verified") is True:
        said = "The links were measured, but what was found cannot be read."
        return Proof(UNKNOWN, "not known", said)
    return _holding(contract, links)


def _holding(contract: Record, links: Sequence[LinkFigures]) -> Proof:
    """Return the proof of links none of which failed; some may not have been measured."""
    held = sum(link.verdict == HOLDS for link in links)
    every = counted(len(links), "link")
    if not held:
        said = f"{every} asked for; whether they are as asked was not measured."
        return Proof(UNKNOWN, "not measured", said)
    if held < len(links):
        said = f"{held:,} of {every} are as asked; the others were not measured."
        return Proof(UNKNOWN, f"{held} of {len(links)} proved", said)
    ratios = [link.speed_ratio for link in links if link.speed_ratio]
    ends = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
    speeds = f": measured goodput is {ends} of what was asked" if ratios else ""
    by_look = ", looked at" if contract.get("by") == "look" else ""
    return Proof(
        GOOD, f"{held} of {len(links)} proved{by_look}", f"All {every} are as asked{speeds}."
    )


def _failing(links: Sequence[LinkFigures], contract: Record, verdict: str) -> Failing:
    """Return the names of the links with this verdict, and of the uplinks, downlinks and paths."""
    found = [f"{link.name} ({', '.join(link.broken)})" for link in links if link.verdict == verdict]
    return found, [name for name, known in _others(contract) if known == verdict]


def _others(contract: Record) -> Iterator[tuple[str, str]]:
    """Yield the name and verdict of each uplink, downlink and pair of nodes without a link."""
    for kind in ("uplink", "downlink"):
        for row in records(contract.get(f"{kind}s")):
            yield f"{word(row.get('node'), 64)} ({kind})", _of_access(row)
    for row in records(contract.get("paths"), sys.maxsize):
        path, via = _of_contract(row, {}), " and ".join(words(row.get("via")))
        yield f"{path.name} over {via} ({', '.join(path.broken)})", path.verdict


def _of_access(row: Record) -> str:
    if row.get("holds") is not False:
        return HOLDS
    return UNDECIDED if row.get("undecided") is True else BROKEN


def _count(failing: Failing, count: int) -> str:
    """Return how many of so many links failed; if only others did, the first of these by its name."""
    links, others = failing
    if links or not others:
        return f"{len(links) or 'some'} of {count}"
    return first_names([name.split(" over ")[0] for name in others], 1)


def _listed(links: Sequence[str], others: Sequence[str]) -> str:
    return first_names([*links, *others], MOST_NAMED)
