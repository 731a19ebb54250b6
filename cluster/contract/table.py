"""Prints the table of a contract."""

import math
from typing import TextIO

from cluster.base.console import print_table
from cluster.contract.verdicts import AccessVerdict, Contract, Verdict


def print_contract(contract: Contract, stream: TextIO) -> None:
    """Print one line per link: each figure as measured/asked, and the verdict."""
    print_table(
        ["MEASURED/ASKED", "DELAY ms", "JITTER ms", "LOSS %", "GOODPUT MB/s", "RATE MB/s"]
        + ["LOADED RTT", ""],
        [_row(verdict) for verdict in contract.verdicts],
        stream,
    )
    for access in contract.accesses:
        print(
            f"{access.kind} of {access.node}: {access.asked_mbyte_s:.3f} MB/s asked, "
            f"{access.measured_mbyte_s:.3f} measured: {_access_result(access)}",
            file=stream,
        )
    print(f"contract: {contract.verdict()} ({contract.seconds:.1f} s)", file=stream)
    for note in contract.notes:
        print(f"note: {note}", file=stream)


def _row(verdict: Verdict) -> list[object]:
    measured = verdict.measured
    return [
        " -> ".join((verdict.link.src, *verdict.via, verdict.link.dst)),
        _of(measured.delay_ms, verdict.link.delay_ms, 2),
        _of(measured.jitter_ms, verdict.link.jitter_ms, 2),
        _of(measured.lost_pct, verdict.expected_lost_pct, 2),
        _of(measured.goodput_mbyte_s, verdict.expected_goodput_mbyte_s, 3),
        _of(measured.rate_mbyte_s, verdict.expected_rate_mbyte_s, 3),
        _number(measured.loaded_rtt_ms, 0),
        _result(verdict)
        if measured.sent or verdict.failed
        else "not measured: the way back is cut",
    ]


def _of(measured: float | None, asked: float, digits: int) -> str:
    shown = _number(measured, digits)
    return shown if shown == "-" else f"{shown}/{_number(asked, digits)}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isinf(value) else f"{value:.{digits}f}"


def _result(verdict: Verdict) -> str:
    said = [f"BROKEN: {', '.join(verdict.broken)}"] if verdict.broken else []
    said += [f"undecided: {', '.join(verdict.undecided)}"] if verdict.undecided else []
    return "; ".join(said) or _holds(verdict.clipped)


def _access_result(access: AccessVerdict) -> str:
    if access.holds:
        return _holds(access.clipped)
    return "undecided" if access.undecided else "BROKEN"


def _holds(clipped: bool) -> str:
    return "clipped by this machine" if clipped else "ok"
