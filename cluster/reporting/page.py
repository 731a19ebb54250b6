"""One HTML file: sections with rendered charts, packed with the data and library that make them interactive. Pure.

All text from a run is escaped here, and nowhere else. In addition, the page's Content-Security-Policy allows only its
own script, by hash, and no requests, so that a missing escape would do no harm.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from cluster.reporting.charts.theme import KIND_COLOURS, OTHER_COLOURS, Chart
from cluster.reporting.render import packed
from cluster.reporting.run_data import BAD, GOOD, UNKNOWN, Tail
from cluster.reporting.sections import Cell, Section, Table
from cluster.reporting.verdicts import Verdict

SIGNS = {GOOD: "✓", BAD: "✗", UNKNOWN: "–"}
ARROW = re.compile(r"[\w.:-]{1,16}-&gt;[\w.:]{1,16}")
PLACE = re.compile(r"\{\{(\w+)\}\}")
EXPLORE = '<button class="explore" type="button">Explore</button>'


@dataclass(frozen=True)
class Drawn:
    """The pictures of a chart, as SVG elements."""

    wide: str
    narrow: str


@dataclass(frozen=True)
class Page:
    """The content of a page.

    Attributes:
        what: its kind, such as "report of a run".
        name: name of the run.
        notes: what could not be read.
    """

    what: str
    name: str
    lead: str
    verdicts: Sequence[Verdict]
    sections: Sequence[Section]
    notes: Sequence[str] = ()


def page_html(page: Page, drawn: Mapping[str, Drawn], library: str) -> str:
    """Return the whole file.

    Args:
        page: its content.
        drawn: pictures by chart name.
        library: Vega, packed.
    """
    charts = [chart for section in page.sections for chart in section.charts]
    script = _file("page.js").strip()
    return _filled(
        _file("page.html"),
        {
            "title": html.escape(f"{page.name} · gradwire"),
            "what": html.escape(page.what),
            "name": html.escape(page.name),
            "lead": _prose(page.lead),
            "colours": colours_css(),
            "style": _file("page.css"),
            "verdicts": _verdicts(page),
            "notes": "".join(f'<p class="note">{html.escape(note)}</p>' for note in page.notes),
            "sections": "\n".join(_section(section, drawn) for section in page.sections),
            "footer": "Made by gradwire from the run's own folder. This file asks nothing of any network.",
            "data": packed(json.dumps(_data(charts), allow_nan=False, separators=(",", ":"))),
            "library": library,
            "script": script,
            "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        },
    )


def colours_css() -> str:
    """Return the CSS variables: for light paper, for dark paper, and light again for print."""
    both = {**OTHER_COLOURS, **KIND_COLOURS}
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in both.items()) for i in (0, 1))
    modes = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{modes}\n@media print {{ :root {{ {light} }} }}"


def _prose(text: str) -> str:
    """Return escaped text in which no link's name breaks at its arrow."""
    return ARROW.sub(r'<span class="name">\g<0></span>', html.escape(text))


def _file(name: str) -> str:
    return (resources.files("cluster.reporting") / name).read_text(encoding="utf-8")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Fill the template in one pass, so that text from a run is never taken for a placeholder."""
    return PLACE.sub(lambda found: values[found[1]], template)


def _data(charts: Sequence[Chart]) -> dict[str, object]:
    return {c.name: {"wide": c.wide, "narrow": c.narrow, "data": dict(c.data)} for c in charts}


def _verdicts(page: Page) -> str:
    if not page.verdicts:
        return ""
    known = {section.key for section in page.sections}
    items = "".join(_verdict(one, known) for one in page.verdicts)
    return f'<ul class="verdicts" aria-label="Verdicts">{items}</ul>'


def _verdict(one: Verdict, known: set[str]) -> str:
    target = one.section if one.section in known else "reproduce"
    return (
        f'<li class="{one.state}"><a href="#{target}"><b>{html.escape(one.question)}</b>'
        f'<span data-sign="{SIGNS[one.state]}">{html.escape(one.answer)}</span></a></li>'
    )


def _section(section: Section, drawn: Mapping[str, Drawn]) -> str:
    figures = "".join(
        _figure(chart, drawn[chart.name]) for chart in section.charts if chart.name in drawn
    )
    body = [
        f'<p class="sentence">{_prose(section.sentence)}</p>',
        f'<div class="charts">{figures}</div>' if figures else "",
        f"<pre>{html.escape(section.code)}</pre>" if section.code else "",
        *(_table(table, has_charts=bool(figures)) for table in section.tables),
        *(_tail(tail) for tail in section.tails),
    ]
    title = f'<h2><a href="#{section.key}">{html.escape(section.title)}</a></h2>'
    return f'<section id="{section.key}">{title}<div>{"".join(body)}</div></section>'


def _figure(chart: Chart, drawn: Drawn) -> str:
    still = f'<div class="still"><div class="wide">{drawn.wide}</div><div class="narrow">{drawn.narrow}</div></div>'
    caption = f"<figcaption>{html.escape(chart.caption)} {EXPLORE}</figcaption>"
    return f'<figure data-chart="{html.escape(chart.name)}">{still}<div class="live"></div>{caption}</figure>'


def _table(table: Table, *, has_charts: bool) -> str:
    figures = [
        any(isinstance(cell, int | float) for cell in column)
        and not any(isinstance(cell, str) for cell in column)
        for column in zip(*table.shown, strict=True)
    ] or [False] * len(table.header)
    rows = "".join(f"<tr>{_cells('td', row, figures)}</tr>" for row in table.shown)
    head = (
        f"<thead><tr>{_cells('th', table.header, figures)}</tr></thead>"
        if any(table.header)
        else ""
    )
    name = html.escape(table.name)
    text = f'<div class="scroll"><table class="{name}">{head}<tbody>{rows}</tbody></table></div>'
    text += f'<p class="note">{html.escape(table.cut_note)}</p>' if table.cut_note else ""
    if table.is_open or not has_charts:
        return text
    return f"<details><summary>As a table: {name.replace('_', ' ')}</summary>{text}</details>"


def _cells(tag: str, cells: Sequence[Cell], figures: Sequence[bool]) -> str:
    return "".join(
        f"<{tag}{' class=figure' if is_figure else ''}>{html.escape(cell_text(cell))}</{tag}>"
        for cell, is_figure in zip(cells, figures, strict=True)
    )


def cell_text(cell: Cell) -> str:
    """Return a cell as tables show it: few digits, a dash for unknown values."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _tail(tail: Tail) -> str:
    text = html.escape("\n".join(tail.lines)) or "(it printed nothing)"
    return f'<p class="tail">{html.escape(f"{tail.rank} {tail.how}")}</p><pre>{text}</pre>'
