"""Prints the summary of a run at the end of a launch."""

from typing import Any

from cluster.base.console import print_table
from cluster.run.runner import Run
from cluster.shaping.host_load import overload_sentence

BUCKETS = ("compute", "transfer", "waiting", "eval")  # that are shown
MOST_ROWS = 5


def print_summary(run: Run) -> None:
    """What a user wants to know first, last."""
    summary = run.summary
    trained = any(summary["seconds"].values())  # another program counts no seconds
    print_table(
        [
            "NODE",
            "EXIT",
            *((f"{bucket.upper()} s" for bucket in BUCKETS) if trained else ()),
            "CARRIED MB",
        ],
        [
            [
                name,
                code,
                *(_seconds(summary, name) if trained else []),
                _sent(summary, name),
            ]
            for name, code in summary["exit_codes"].items()
        ],
    )
    _print_collectives(summary)
    accuracy = summary["test_accuracy"]
    if accuracy is not None:
        print(
            f"test accuracy {_figure(accuracy, 4)}   final loss {_figure(summary['final_loss'], 4)}"
        )
    elif "validation_loss" in summary["tested"]:
        loss = summary["tested"]["validation_loss"]
        print(
            f"validation loss {_figure(loss, 4)}   final loss {_figure(summary['final_loss'], 4)}"
        )
    print(f"wall {summary['wall_s']:.1f} s   {bytes_sentence(summary['bytes'])}")
    if not summary["links"]:
        print("the links are not shaped: no profile was asked for")
    elif not summary["verified"]:
        print("the links were not measured (--no-verify)")
    elif summary["undecided"]:
        print(f"the links were not all proved (--allow-undecided): {summary['undecided']}")
    if overload := overload_sentence(summary["host"]):
        print(overload)
    print(f"run   {run.folder}")


def _seconds(summary: dict[str, Any], rank: str) -> list[str]:
    seconds = summary["seconds"].get(rank, {})
    return [f"{seconds[key]:.1f}" if key in seconds else "-" for key in BUCKETS]


def _print_collectives(summary: dict[str, Any]) -> None:
    """Those that took most of the time, next to what these links could have done."""
    rows = summary["collectives"]
    if not rows:
        return
    print_table(
        ["COLLECTIVE", "FOR", "BYTES", "COUNT", "MEAN s", "BOUND s", "RATIO"],
        [
            [
                *(row[key] for key in ("kind", "purpose", "bytes", "count")),
                *(_figure(row[key], 3) for key in ("seconds", "bound_s")),
                _figure(row["ratio"], 2),
            ]
            for row in rows[:MOST_ROWS]
        ],
    )
    if len(rows) > MOST_ROWS:
        print(f"… and {len(rows) - MOST_ROWS} more: summary.json")
    if summary["bounds"]:
        print(f"bound: what the links, as {summary['bounds']}, allow at best")


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def bytes_sentence(carried: dict[str, Any]) -> str:
    """What the links carried, and how near that is to what the collectives must have made them carry."""
    text = f"links carried {carried['total'] / 1e6:.1f} MB"
    loop = carried["loop"]
    if not loop or not loop["ratio"]:
        return text
    text += f" ({loop['ratio']:.3f} of what the collectives need)"
    return f"{text}; more than 5 % off: {', '.join(loop['off'])}" if loop["off"] else text


def _sent(summary: dict[str, Any], rank: str) -> str:
    """MB that the rank's node has sent; of a node with several ranks beside the first one."""
    node, _, local_rank = rank.partition("-")
    links: dict[str, int] = summary["bytes"]["links"]
    count = sum(count for link, count in links.items() if link.startswith(f"{node}->"))
    return f"{count / 1e6:.1f}" if local_rank in ("", "0") else ""
