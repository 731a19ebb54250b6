"""Prints the summary of a run at the end of a launch."""

from collections.abc import Sequence

from cluster.accounting import causes, critical_path
from cluster.accounting.attribution import transfer_s
from cluster.accounting.better_link import sentence
from cluster.base.console import print_table
from cluster.reporting.after_run import report_file
from cluster.run.runner import Run
from cluster.run.summary_document import (
    AttributionPart,
    BytesPart,
    ExperiencePart,
    Summary,
    WhatIfRow,
)
from cluster.shaping.host_load import overload_sentence
from protocol.rank import LOST

BUCKETS = ("rollout", "compute", "strategy", "transfer", "waiting", "eval")  # that are shown
RARE = {"rollout", "strategy"}  # shown only if a rank has any
SHOWN_S = 0.05  # what is less is printed as 0.0
MOST_ROWS = 5
LEAST_SHARE = 0.005  # smaller parts are not shown
FIGURES = {"test_accuracy": 4, "validation_loss": 4, "test_return": 2, "test_success": 3}


def print_summary(run: Run) -> None:
    """Print the summary; it comes last on the screen, so that the user sees it first."""
    summary = run.summary
    buckets = _shown_buckets(summary)
    print_table(
        [
            "NODE",
            "EXIT",
            *(f"{bucket.upper()} s" for bucket in buckets),
            "CARRIED MB",
        ],
        [
            [
                name,
                "lost" if code == LOST else code,
                *_seconds(summary, name, buckets),
                _sent(summary, name),
            ]
            for name, code in summary["exit_codes"].items()
        ],
    )
    if restarts := summary["restarts"]:
        print(f"restarts: {', '.join(f'{name} {count}' for name, count in restarts.items())}")
    _print_collectives(summary)
    if path := summary["critical_path"]:
        print(critical_path.sentence(path, summary["what_if"] or []))
    if slowed := causes.sentence(summary["causes"]):
        print(slowed)
    _print_tests(summary)
    _print_experience(summary["experience"])
    print(f"wall {summary['wall_s']:.1f} s   {bytes_sentence(summary['bytes'])}")
    if not summary["links"]:
        print("the links are not shaped: no profile was asked for")
    elif not summary["verified"]:
        print("the links were not measured (--no-verify)")
    elif summary["undecided"]:
        print(f"the links were not all proved (--allow-undecided): {summary['undecided']}")
    if changed := summary["links_changed"]:
        then = "measured for the beginning of the run only; then"
        print(
            f"the links were {then if summary['verified'] else 'not as asked throughout'}: {changed}"
        )
    if overload := overload_sentence(summary["host"]["limits"] if summary["host"] else []):
        print(overload)
    if report := report_file(run.folder):
        print(f"report {report}")
    print(f"run   {run.folder}")


def _shown_buckets(summary: Summary) -> list[str]:
    """Return the buckets to show; none for a program that counts no seconds."""
    counted = [seconds for seconds in summary["seconds"].values() if seconds]
    if not counted:
        return []
    return [b for b in BUCKETS if b not in RARE or any(s.get(b, 0.0) >= SHOWN_S for s in counted)]


def _seconds(summary: Summary, rank: str, buckets: Sequence[str]) -> list[str]:
    seconds = summary["seconds"].get(rank, {})
    return [f"{seconds[key]:.1f}" if key in seconds else "-" for key in buckets]


def _print_tests(summary: Summary) -> None:
    """Print the most important figure of the last test, and the environments' steps."""
    for name, digits in FIGURES.items():
        if summary["tested"].get(name) is not None:
            figure = f"{name.replace('_', ' ')} {_figure(summary['tested'][name], digits)}"
            print(f"{figure}   final loss {_figure(summary['final_loss'], 4)}")
            break
    if stepped := summary["environments"]:
        rate = f" ({stepped['steps_s']:,.0f} a second)" if stepped["steps_s"] else ""
        print(f"environments made {stepped['steps']:,} steps{rate}")


def _print_experience(experience: ExperiencePart | None) -> None:
    """Print how much experience the learner got, its staleness, and the age of actors' weights beside the predicted."""
    if not experience:
        return
    updates, seconds = experience["staleness_updates"], experience["staleness_s"]
    rejected = f", {experience['rejected']} rejected" if experience["rejected"] else ""
    print(
        f"experience {experience['env_steps']:,} steps in {experience['pieces']:,} pieces{rejected}"
        f"   staleness {_median(updates)} updates, {_median(seconds)} s (median, p95)"
        f"   replayed {experience['replay_ratio']:.2f} times"
    )
    print_table(
        ["ACTORS", "PIECES", "LIVES", "CONNECTIONS", "WEIGHTS' AGE s", "PREDICTED s"],
        [
            [
                name,
                f"{actor.get('pieces', 0):.0f}",
                f"{actor['lives']:.0f}",
                f"{actor['connections']:.0f}",
                _figure(actor.get("weights_age_s"), 2),
                _figure(actor["predicted_weights_age_s"], 2),
            ]
            for name, actor in experience["actors"].items()
        ],
    )
    if broadcast := experience["broadcast"]:
        print(
            f"broadcast ({broadcast['topology']}) of {broadcast['versions']} versions"
            f"   {_figure(broadcast['seconds'], 2)} s each, bound {_figure(broadcast['bound_s'], 2)} s,"
            f" ratio {_figure(broadcast['ratio'], 2)} (medians of {broadcast['timed']} that all waited for)"
        )


def _median(distribution: dict[str, float]) -> str:
    if not distribution:
        return "-"
    return f"{distribution['median']:.1f}, {distribution['p95']:.1f}"


def _print_collectives(summary: Summary) -> None:
    """Print the collectives that took the most time, next to their bounds on these links."""
    rows = summary["collectives"]
    if not rows:
        return
    print_table(
        ["COLLECTIVE", "FOR", "BYTES", "COUNT", "MEAN s", "GLOO s", "RATIO", "LINKS s"],
        [
            [
                row["kind"],
                row["purpose"],
                row["bytes"],
                row["count"],
                _figure(row["seconds"], 3),
                _figure(row["gloo_bound_s"], 3),
                _figure(row["ratio"], 2),
                _figure(row["links_bound_s"], 3),
            ]
            for row in rows[:MOST_ROWS]
        ],
    )
    if len(rows) > MOST_ROWS:
        print(f"… and {len(rows) - MOST_ROWS} more: summary.json")
    if summary["bounds"]:
        print(
            f"GLOO s: gloo's ring on these links, as {summary['bounds']}, at best;"
            " LINKS s: what the links allow at best, by any way"
        )
    _print_attribution(summary["attribution"], summary["what_if"] or [])


def _print_attribution(attribution: AttributionPart | None, changes: list[WhatIfRow]) -> None:
    """Print where the collectives' time went, largest part first, and the change that would have helped most."""
    if not attribution:
        return
    seconds = attribution["seconds"]
    shares = sorted(attribution["share"].items(), key=lambda item: -item[1])
    parts = ", ".join(f"{part} {share:.0%}" for part, share in shares if abs(share) >= LEAST_SHARE)
    better = sentence(changes)
    took = f"collectives took {transfer_s(seconds):.1f} s once all ranks were there ({parts})"
    print(f"{took}; until then {seconds['skew']:.1f} s")
    if better:
        print(better)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def bytes_sentence(carried: BytesPart) -> str:
    """Return a sentence on what the links carried, and its ratio to the bytes that the collectives need."""
    if carried["total"] is None:
        return "what links carried was not counted"
    text = f"links carried {carried['total'] / 1e6:.1f} MB"
    loop = carried["loop"]
    if not loop or not loop["ratio"]:
        return text
    text += f" ({loop['ratio']:.3f} of what the collectives need)"
    return f"{text}; more than 5 % off: {', '.join(loop['off'])}" if loop["off"] else text


def _sent(summary: Summary, rank: str) -> str:
    """Return the MB that the rank's node sent; '' for all but the node's first rank."""
    node, _, local_rank = rank.partition("-")
    links = summary["bytes"]["links"]
    count = sum(count for link, count in links.items() if link.startswith(f"{node}->"))
    return f"{count / 1e6:.1f}" if local_rank in ("", "0") else ""
