"""The report's tables as CSV, one row per cell: section, table, row, column, value. Pure."""

import csv
import io

from cluster.reporting.page import Page
from cluster.reporting.sections import Cell

HEADER = ("section", "table", "row", "column", "value")
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def page_csv(page: Page) -> str:
    """Return all tables, figures in full. Text that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for verdict in page.verdicts:
        writer.writerow(
            ["verdict", "verdicts", verdict.question, verdict.state, _safe(verdict.answer)]
        )
    for section in page.sections:
        for table in section.tables:
            for row in table.rows:
                first = _safe(row[0])
                names = map(_safe, table.header[1:])
                for name, cell in zip(names, row[1:], strict=True):
                    writer.writerow([section.key, table.name, first, name, _safe(cell)])
    return out.getvalue()


def _safe(cell: Cell) -> object:
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(FORMULAS) else cell
    return "" if cell is None else cell
