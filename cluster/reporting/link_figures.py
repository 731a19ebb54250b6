"""The links of a run: what was asked for, what was measured, and what they carried. Pure."""

from collections.abc import Sequence

from cluster.reporting.run_data import BAD, GOOD, UNKNOWN, LinkFigures, Proof
from cluster.reporting.values import Record, number, numbers, record, records, word, words

MOST_LINKS = 20_000


def read_links(contract: Record, asked: object, carried: Record) -> list[LinkFigures]:
    """Return the links as measured in contract.json, else as asked for in links.json."""
    by_link = numbers(carried.get("links"), MOST_LINKS)
    proved = records(contract.get("links"), MOST_LINKS)
    if proved:
        found = [_of_contract(row, by_link) for row in proved]
    else:
        found = [_of_link(row, by_link) for row in records(asked, MOST_LINKS)]
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
    """Return whether the links are as asked, in a few words."""
    if not links:
        return Proof(UNKNOWN, "not shaped")
    if not contract:
        return Proof(UNKNOWN, "not measured")
    broken = [link.name for link in links if link.verdict == "broken"]
    undecided = [link.name for link in links if link.verdict == "undecided"]
    if broken or contract.get("broken") is True:
        return Proof(BAD, f"{len(broken) or 'some'} of {len(links)} broken")
    if word(summary.get("links_changed")):
        return Proof(BAD, "changed during the run")
    if undecided or contract.get("decided") is False or word(summary.get("undecided")):
        return Proof(UNKNOWN, f"{len(undecided) or 'some'} of {len(links)} undecided")
    by_look = ", looked at" if contract.get("by") == "look" else ""
    return Proof(GOOD, f"{len(links)} of {len(links)} proved{by_look}")
