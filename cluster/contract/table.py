"""Tables that more than one verb prints."""

import math
from typing import TextIO

from cluster.console import print_table
from cluster.contract.verdicts import Contract, Verdict


def print_contract(contract: Contract, stream: TextIO) -> None:
    """The table: asked, expected and measured, a link a line."""
    print_table(
        ["LINK", "RTT ms", "MEASURED", "LOADED", "JITTER ms", "MEASURED", "LOSS %", "MEASURED"]
        + ["GOODPUT MB/s", "MEASURED", "RATE", "SPEED", ""],
        [_row(verdict) for verdict in contract.verdicts],
        stream,
    )
    for access in contract.accesses:
        print(
            f"{access.kind} of {access.node}: {access.asked_mbyte_s:.3f} MB/s asked, "
            f"{access.measured_mbyte_s:.3f} measured: {_result(access.clipped, access.holds)}",
            file=stream,
        )
    print(f"contract: {contract.verdict()} ({contract.seconds:.1f} s)", file=stream)
    for note in contract.notes:
        print(f"note: {note}", file=stream)


def _row(verdict: Verdict) -> list[object]:
    measured = verdict.measured
    return [
        " -> ".join((verdict.link.src, *verdict.via, verdict.link.dst)),
        f"{verdict.expected_rtt_ms:.2f}",
        _number(measured.rtt_ms, 2),
        _number(measured.loaded_rtt_ms, 0),
        f"{verdict.link.jitter_ms:.2f}",
        f"{measured.jitter_ms:.2f}",
        f"{verdict.link.lost_pct:.3g}",
        _number(measured.lost_pct, 2),
        f"{verdict.expected_goodput_mbyte_s:.3f}",
        _number(measured.goodput_mbyte_s, 3),
        _number(measured.rate_mbyte_s, 3),
        measured.speed_by or "-",
        _result(verdict.clipped, not verdict.broken, ", ".join(verdict.broken))
        if measured.sent
        else "not measured: the way back is cut",
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isinf(value) else f"{value:.{digits}f}"


def _result(clipped: bool, holds: bool, broken: str = "") -> str:
    if not holds:
        return f"BROKEN: {broken}" if broken else "BROKEN"
    return "clipped by this machine" if clipped else "ok"
