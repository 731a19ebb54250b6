"""The report's sections as Markdown, for terminals, issues and mail. Pure."""

import re
from collections.abc import Collection, Sequence

from cluster.reporting.page import SIGNS, Page, cell_text
from cluster.reporting.sections import Section, Table

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
FENCE = "~" * 24


def page_markdown(page: Page, pictures: Collection[str] = ()) -> str:
    """Return the whole file.

    Args:
        page: its content.
        pictures: names of the charts that have a PNG beside the file.
    """
    parts = [f"# {plain(page.name)}", plain(page.lead)]
    parts += [
        "\n".join(
            f"- {SIGNS[v.state]} {plain(v.question)}: {plain(v.answer)}" for v in page.verdicts
        )
    ]
    parts += [f"> {plain(note)}" for note in page.notes]
    for section in page.sections:
        parts += _section(section, pictures)
    return "\n\n".join(part for part in parts if part) + "\n"


def picture_name(chart: str) -> str:
    """Return the name of a chart's PNG, beside the report."""
    return f"report-{chart}.png"


def plain(text: str) -> str:
    """Return text with Markdown characters escaped."""
    return SPECIAL.sub(r"\\\1", text)


def _section(section: Section, pictures: Collection[str]) -> list[str]:
    drawn = [
        f"![{plain(c.caption)}]({picture_name(c.name)})"
        for c in section.charts
        if c.name in pictures
    ]
    tails = [
        f"{plain(tail.rank)} {plain(tail.how)}:\n\n{FENCE}\n{_fenced(tail.lines)}\n{FENCE}"
        for tail in section.tails
    ]
    code = [f"{FENCE}\n{_fenced([section.code])}\n{FENCE}"] if section.code else []
    tables = [_table(table) for table in section.tables if table.rows]
    title = f"## {plain(section.title)}"
    return [title, plain(section.sentence), *drawn, *code, *tables, *tails]


def _fenced(lines: Sequence[str]) -> str:
    """Return the lines so that none of them ends the fence."""
    return "\n".join(line.replace("~~~", "~ ~ ~") for line in lines)


def _table(table: Table) -> str:
    header = [plain(name) or " " for name in table.header]
    rows = [
        header,
        ["---"] * len(header),
        *([plain(cell_text(c)) for c in row] for row in table.shown),
    ]
    note = f"\n\n{plain(table.cut_note)}" if table.cut_note else ""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + note
