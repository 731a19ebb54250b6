"""Writes reports: report.html, report.md, report.csv, and PNG files on request. Touches nothing else.

Without the extra `report` there is no report.html; the files that need no charts are still written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from cluster.base.errors import ClusterError, UsageError, system_error
from cluster.base.files import write_atomically
from cluster.reporting.library import packed_library
from cluster.reporting.markdown import page_markdown, picture_name
from cluster.reporting.page import Drawn, Page, page_html
from cluster.reporting.render import converter, png, svg
from cluster.reporting.run_data import RunData
from cluster.reporting.sections import sections
from cluster.reporting.sentences import lead
from cluster.reporting.tables import page_csv
from cluster.reporting.verdicts import verdicts

MODE = 0o666
NAME = "report"


@dataclass(frozen=True)
class Written:
    """The result of writing a page.

    Attributes:
        files: the files written, the most readable first.
        missing: why there are no charts, and what to do; '' if there are charts.
    """

    files: Sequence[Path]
    missing: str = ""


def run_page(run: RunData) -> Page:
    """Return the page of one run."""
    return Page("report of a run", run.name, lead(run), verdicts(run), sections(run), run.notes)


def write_page(page: Page, folder: Path, name: str = NAME, *, pictures: bool = False) -> Written:
    """Write all files of a page.

    Args:
        page: its content.
        folder: the folder to write to; made if it is missing.
        name: name of the files, without extension.
        pictures: whether to write PNG files, too.

    Raises:
        ClusterError: the files cannot be written, on a full disk, say. No file is left half written.
        UsageError: `pictures` is set, and vl-convert is not installed.
    """
    try:
        convert, missing = converter(), ""
    except UsageError as error:
        if pictures:
            raise
        convert, missing = None, f"no {name}.html: {error.message}; {error.hint}"
    try:
        return Written(_write(page, folder, name, convert, pictures=pictures), missing)
    except OSError as error:
        raise _refused(folder, name, error) from None


def _write(
    page: Page, folder: Path, name: str, convert: ModuleType | None, *, pictures: bool
) -> list[Path]:
    contents: dict[str, bytes] = {}
    charts = [chart for section in page.sections for chart in section.charts]
    if convert is not None:
        drawn = {c.name: Drawn(svg(c, c.wide, convert), svg(c, c.narrow, convert)) for c in charts}
        contents[f"{name}.html"] = page_html(page, drawn, packed_library(convert)).encode()
    if convert is not None and pictures:
        contents |= {picture_name(chart.name): png(chart, convert) for chart in charts}
    shown = {chart.name for chart in charts} if pictures else set()
    contents[f"{name}.md"] = page_markdown(page, shown).encode()
    contents[f"{name}.csv"] = page_csv(page).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        write_atomically(folder / file, content, MODE)
    return [folder / file for file in contents]


def _refused(folder: Path, name: str, error: OSError) -> ClusterError:
    found = system_error(error)
    return ClusterError(
        f"{folder / name}.html cannot be written: {error.strerror or error}",
        found.hint if error.errno else "write it elsewhere: --output FOLDER",
    )
