"""Tables that more than one verb prints."""

from typing import TextIO

from cluster.console import print_table
from cluster.contract import Contract, Verdict


def print_contract(contract: Contract, stream: TextIO) -> None:
    """The table: asked, expected and measured, a link a line."""
    print_table(
        [
            "LINK",
            "RTT ms",
            "MEASURED",
            "JITTER ms",
            "MEASURED",
            "LOSS %",
            "MEASURED",
            "GOODPUT MB/s",
            "MEASURED",
            "",
        ],
        [_row(verdict) for verdict in contract.verdicts],
        stream,
    )
    print(f"contract: {contract.verdict()} ({contract.seconds:.1f} s)", file=stream)
    for note in contract.notes:
        print(f"note: {note}", file=stream)


def _row(verdict: Verdict) -> list[object]:
    measured = verdict.measured
    result = "BROKEN: " + ", ".join(verdict.broken) if verdict.broken else "ok"
    return [
        " -> ".join((verdict.link.src, *verdict.via, verdict.link.dst)),
        f"{verdict.expected_rtt_ms:.2f}",
        f"{measured.rtt_ms:.2f}",
        f"{verdict.link.jitter_ms:.2f}",
        f"{measured.jitter_ms:.2f}",
        f"{verdict.link.loss_pct:g}",
        f"{measured.lost_pct:.2f}",
        f"{verdict.expected_goodput_mbyte_s:.3f}",
        "-" if measured.goodput_mbyte_s is None else f"{measured.goodput_mbyte_s:.3f}",
        "clipped by this machine" if verdict.clipped and not verdict.broken else result,
    ]
