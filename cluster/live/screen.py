"""Draws the state of a run as one screen of text. Pure: turns a state document and a size into lines for rich.

The lines never exceed the screen's width and height. If not all ranks or links fit, those that most need attention are
shown, and a line says how many are not. Nothing is interpreted as markup, because the text contains what nodes sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console as RichConsole
from rich.console import Group
from rich.text import Text

from cluster.base.stdout import plain
from cluster.live.state import LineRow, LinkRow, LiveState, RankRow

WIDE = 70  # the number of columns from which all figures fit
LEAST_WIDTH, LEAST_HEIGHT = 20, 8
MOST_EVENTS, MOST_NOTES = 3, 2
BAR_CELLS = 30
COLOURS = {
    "computing": "green",
    "collective": "cyan",
    "waiting": "yellow",
    "starting": "dim",
    "ended": "dim",
    "restarting": "magenta",
}
ALARMING = "bold red"  # every other state
# Ranks that still compute come before those that wait for them.
URGENCY = (
    *("failed", "lost", "silent", "stopped", "restarting", "starting", "computing", "waiting"),
    *("collective", "ended"),
)
Cell = tuple[str, str]  # text, style
Row = TypeVar("Row")


def draw(state: LiveState, width: int, height: int, most_lines: int = 10) -> Group:
    """Return the screen.

    Args:
        state: the state of the run.
        width: width of the terminal, in cells.
        height: height of the terminal, in lines.
        most_lines: the largest number of the ranks' last printed lines to show.
    """
    width, height = max(LEAST_WIDTH, width), max(LEAST_HEIGHT, height)
    head = [*_head(state), *_time(state, width), *_news(state)]
    left = max(4, height - len(head))
    printed = _printed(state.lines[-min(most_lines, left // 4) :] if most_lines else ())
    ranks_room, links_room = _share(
        left - len(printed), len(state.ranks) + 1, len(state.links) + 1 if state.links else 0
    )
    lines = [
        *head,
        *_ranks(state.ranks, width, ranks_room),
        *_links(state.links, width, links_room),
        *printed,
    ]
    return Group(*(_fitted(line, width) for line in lines[:height]))


def screen_text(state: LiveState, width: int, height: int, most_lines: int = 10) -> str:
    """Return the screen as plain text, without colours."""
    console = RichConsole(file=StringIO(), width=max(LEAST_WIDTH, width), color_system=None)
    with console.capture() as captured:
        console.print(draw(state, width, height, most_lines))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def readable(text: str) -> str:
    """Return a node's text made safe for one line of a screen: it cannot move the cursor or reverse the line."""
    return "".join(one if one.isprintable() else "?" for one in plain(text).replace("\t", " "))


def _head(state: LiveState) -> list[Text]:
    words = [state.program, f"over {state.profile}" if state.profile else "", state.phase]
    title = " ".join(word for word in words if word)
    return [
        Text.assemble((readable(state.run), "bold"), f"  {readable(title)}"),
        Text("  ".join(_progress(state))),
    ]


def _progress(state: LiveState) -> list[str]:
    said = [_clock(state.elapsed_s)]
    if state.step is not None:
        said.append(f"step {state.step}" + (f"/{state.steps}" if state.steps else ""))
    if state.steps_s is not None:
        said.append(f"{state.steps_s:.3g} steps/s")
    if state.left_s is not None:
        said.append(f"left {_clock(state.left_s)}")
    return said


def _time(state: LiveState, width: int) -> list[Text]:
    """Return lines that show where the ranks' time went so far."""
    if state.computing is None or state.communicating is None or state.other is None:
        return []
    shares = (state.computing, state.communicating, state.other)
    cells = [round(BAR_CELLS * min(1.0, share)) for share in shares[:2]]
    bar = f"[{('#' * cells[0] + '=' * cells[1])[:BAR_CELLS]:.<{BAR_CELLS}}]"
    names = ("# computing", "= communicating", ". other") if width >= WIDE else ("#", "=", ".")
    said = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
    return [Text(f"time {said}"), Text(f"     {bar}")]


def _news(state: LiveState) -> list[Text]:
    events = [
        Text(f"schedule, {event.after_s:.1f} s: {readable(event.what)}", "magenta")
        for event in state.events[-MOST_EVENTS:]
    ]
    return events + [
        Text(f"note: {readable(note)}", "yellow") for note in state.notes[-MOST_NOTES:]
    ]


def _ranks(ranks: Sequence[RankRow], width: int, room: int) -> list[Text]:
    shown, left = _chosen(ranks, room - 1, _urgency)
    wide = width >= WIDE
    header = ["RANK", "STATE", "STEP", "LOSS"]
    header += ["COMP %", "COMM %", "RESTARTS", "DOING"] if wide else []
    if not any(row.restarts for row in ranks) and wide:
        header.remove("RESTARTS")
    rows = [[_rank_cell(row, name) for name in header] for row in shown]
    more = [_states_of(left)] if left else []
    return [*_table(header, rows, {"STEP", "LOSS", "COMP %", "COMM %", "RESTARTS"}), *more]


def _rank_cell(row: RankRow, name: str) -> Cell:
    texts = {
        "RANK": row.name,
        "STATE": row.state,
        "STEP": "-" if row.step is None else str(row.step),
        "LOSS": "NaN" if row.bad_loss else "-" if row.loss is None else f"{row.loss:.4g}",
        "COMP %": _percent(row.computing),
        "COMM %": _percent(row.communicating),
        "RESTARTS": str(row.restarts or "-"),
        "DOING": ", ".join(word for word in (row.doing, row.score) if word),
    }
    return readable(texts[name]), COLOURS.get(row.state, ALARMING) if name == "STATE" else ""


def _states_of(ranks: Sequence[RankRow]) -> Text:
    counts = Counter(row.state for row in ranks)
    words = ", ".join(f"{count} {readable(state)}" for state, count in counts.most_common())
    return Text(f"… and {len(ranks)} more: {words}", "dim")


def _links(links: Sequence[LinkRow], width: int, room: int) -> list[Text]:
    if not links or room < 2:
        return []
    shown, left = _chosen(links, room - 1, _load)
    header = ["LINK", "MB/s", "ASKED"]
    header += ["QUEUED KB", "DROPS", "SENT MB", ""] if width >= WIDE else ["KB", "DROPS"]
    rows = [[_link_cell(row, name) for name in header] for row in shown]
    more = [Text(f"… and {len(left)} more links, less busy", "dim")] if left else []
    return [*_table(header, rows, {*header[1:]} - {""}), *more]


def _link_cell(row: LinkRow, name: str) -> Cell:
    share = max(0.0, min(1.0, (row.mbyte_s or 0.0) / max(row.asked_mbyte_s, 1e-9)))
    texts = {
        "LINK": f"{row.src}->{row.dst}",
        "MB/s": "-" if row.mbyte_s is None else f"{row.mbyte_s:.3f}",
        "ASKED": f"{row.asked_mbyte_s:.4g}",
        "QUEUED KB": f"{row.backlog_bytes / 1e3:.0f}",
        "KB": f"{row.backlog_bytes / 1e3:.0f}",
        "DROPS": f"{row.dropped_packets:.0f}",
        "SENT MB": f"{row.sent_bytes / 1e6:.1f}",
        "": "#" * round(10 * share),
    }
    return readable(texts[name]), "cyan" if name == "" else ""


def _printed(lines: Sequence[LineRow]) -> list[Text]:
    width = max((cell_len(row.name) for row in lines), default=0)
    return [Text(f"{row.name:<{width}} | {readable(row.line)}", "dim") for row in lines]


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]], figures: set[str]) -> list[Text]:
    """Return lines with columns as wide as their widest cell; columns in `figures` are right-aligned."""
    cells: list[list[Cell]] = [[(name, "bold") for name in header], *map(list, rows)]
    widths = [max(cell_len(row[place][0]) for row in cells) for place in range(len(header))]
    return [
        Text("  ").join(
            Text(_padded(text, width, on_right=name in figures), style)
            for (text, style), width, name in zip(row, widths, header, strict=True)
        )
        for row in cells
    ]


def _padded(text: str, width: int, *, on_right: bool) -> str:
    return " " * (width - cell_len(text)) + text if on_right else set_cell_size(text, width)


def _fitted(line: Text, width: int) -> Text:
    """Cut a line to the screen's width, and forbid wrapping: a terminal that gets narrower would wrap it."""
    line.rstrip()
    line.truncate(width - 1, overflow="ellipsis")
    line.no_wrap = True
    return line


def _chosen(
    rows: Sequence[Row], room: int, order: Callable[[Row], tuple[float, float]]
) -> tuple[list[Row], list[Row]]:
    """Split the rows into those shown, in their own order, and those that do not fit, which a last line counts."""
    if len(rows) <= room:
        return list(rows), []
    ordered = sorted(range(len(rows)), key=lambda place: order(rows[place]))
    shown = sorted(ordered[: max(0, room - 1)])
    return [rows[place] for place in shown], [rows[p] for p in ordered[max(0, room - 1) :]]


def _urgency(row: RankRow) -> tuple[float, float]:
    place = URGENCY.index(row.state) if row.state in URGENCY else len(URGENCY)
    return place, row.rank


def _load(row: LinkRow) -> tuple[float, float]:
    """Return a sort key that puts the busiest link first."""
    return -(row.mbyte_s or 0.0) / max(row.asked_mbyte_s, 1e-9), -row.backlog_bytes


def _share(room: int, ranks: int, links: int) -> tuple[int, int]:
    """Return the rows for ranks and for links, with headers: half each; what one does not need goes to the other."""
    half = room // 2
    if ranks <= half or not links:
        of_ranks = min(ranks, room)
    elif links <= room - half:
        of_ranks = min(ranks, room - links)
    else:
        of_ranks = half
    return of_ranks, room - of_ranks


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
