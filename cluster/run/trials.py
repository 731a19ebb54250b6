"""Trials of single changes: the changed plans of a cluster's links, and the results. Pure, but for reading runs.

And whatif.json, with these results, what was predicted, and the run over the links of other profiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TypedDict

from cluster.accounting.alternatives import Alternative, collectives_s
from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.other_links import RunModel
from cluster.base.json_file import write_json
from cluster.links.changes import Change, change_plans
from cluster.links.profiles import Profile
from cluster.run.past_run import PastRun, links_by, took_s
from protocol.link import ACCESS_LIMITS, LIMITS, Link
from protocol.node_plan import NodePlan

FILE = "whatif.json"
ROUGH = "and longer: no model here has lost packets or jitter"
NO_END = "a rank recorded no end"
ON_LINKS = ("rate", "delay", "loss")


@dataclass(frozen=True)
class Measured:
    """The time that one run took.

    Attributes:
        folder: the run folder.
        seconds: seconds from the first rank's start to the last rank's end.
        collectives_s: seconds that it would have saved if its collectives had taken none; without those of tests.
    """

    folder: str
    seconds: float
    collectives_s: float


class RunRow(TypedDict):
    """A run of whatif.json."""

    folder: str
    took_s: float
    collectives_s: float


class ChangeRow(TypedDict):
    """One of `changes` in whatif.json: a prediction."""

    what: str
    of: str
    saves_s: float | None
    can_be_tried: bool
    note: str


class TriedRow(TypedDict):
    """One of `tried` in whatif.json: the predicted and the achieved saving."""

    what: str
    of: str
    predicted_s: float | None
    achieved_s: float
    achieved_collectives_s: float
    baselines: list[RunRow]
    runs: list[RunRow]


class ProfileRow(TypedDict):
    """One of `profiles` in whatif.json: the run over the links of another profile, as predicted; null: it cannot be."""

    profile: str
    took_s: float | None
    longer_s: float | None
    note: str


class WhatIf(TypedDict):
    """whatif.json: docs/run-folder.md."""

    run: str
    took_s: float | None
    collectives_s: float
    links: str
    changes: list[ChangeRow]
    tried: list[TriedRow]
    profiles: list[ProfileRow]


@dataclass
class Trial:
    """One change, and the runs with it.

    Attributes:
        change: the change.
        runs: runs with the change, in order; all trials share the baselines before them.
    """

    change: Alternative
    runs: list[Measured] = field(default_factory=list)


def choose_trials(predicted: Sequence[Alternative], count: int) -> list[Trial]:
    """Return the first `count` changes that can be tried: those that save most, then those with unknown effect."""
    return [Trial(one) for one in predicted if one.can_be_tried][:count]


def changed_plans(plans: Mapping[str, NodePlan], change: Alternative) -> dict[str, NodePlan]:
    """Return the new plans of the nodes whose links change; empty if the change does not concern links.

    Raises:
        UsageError: there is no such link.
    """
    if change.what not in ON_LINKS:
        return {}
    src, arrow, dst = change.of.partition("->")
    if not arrow:
        node, _, kind = change.of.partition(" ")
        return _faster_access(plans, node, f"{kind}_mbyte_s")
    link = plans[src].outgoing()[dst]
    return change_plans(plans, [Change(src, dst, _better(link, change.what))])


def measure(folder: Path, ranks: Sequence[str]) -> Measured | None:
    """Return the times of a run that has ended; None if not all ranks came to their ends."""
    seconds = took_s(folder, ranks)
    if seconds is None:
        return None
    return Measured(str(folder), seconds, collectives_s(read_collectives(folder, ranks)))


def trial_row(trial: Trial, baselines: Sequence[Measured]) -> TriedRow:
    """Return the results of a trial, against the baselines of its runs."""
    before = baselines[: len(trial.runs)]
    return {
        "what": trial.change.what,
        "of": trial.change.of,
        "predicted_s": _rounded(trial.change.saves_s),
        "achieved_s": _difference([one.seconds for one in before], [r.seconds for r in trial.runs]),
        "achieved_collectives_s": _difference(
            [one.collectives_s for one in before], [r.collectives_s for r in trial.runs]
        ),
        "baselines": [_document(one) for one in before],
        "runs": [_document(one) for one in trial.runs],
    }


def whatif_document(
    run: PastRun,
    predicted: Sequence[Alternative],
    trials: Sequence[Trial],
    baselines: Sequence[Measured],
    profiles: Sequence[ProfileRow] = (),
) -> WhatIf:
    """Return the content of whatif.json."""
    return {
        "run": run.folder.resolve().name,
        "took_s": _rounded(run.took_s),
        "collectives_s": round(collectives_s(run.recorded.collectives), 4),
        "links": run.source,
        "changes": [
            {
                "what": one.what,
                "of": one.of,
                "saves_s": _rounded(one.saves_s),
                "can_be_tried": one.can_be_tried,
                "note": one.note,
            }
            for one in predicted
        ],
        "tried": [trial_row(trial, baselines) for trial in trials if trial.runs],
        "profiles": [*profiles],
    }


def profile_row(run: PastRun, model: RunModel, profile: Profile) -> ProfileRow:
    """Return how long a run would have taken over the links of another profile.

    Raises:
        UsageError: the run's topology does not fit this profile.
    """
    others, whole_s = links_by(run, profile), run.took_s
    if reason := model.obstacle_on(others) or ("" if whole_s else NO_END):
        return {
            "profile": profile.name,
            "took_s": None,
            "longer_s": None,
            "note": f"not predicted: {reason}",
        }
    longer_s = model.on(others).longer_s
    return {
        "profile": profile.name,
        "took_s": _rounded((whole_s or 0.0) + longer_s),
        "longer_s": _rounded(longer_s),
        "note": ROUGH if others.is_rough else "",
    }


def write_document(folder: Path, document: WhatIf) -> Path:
    """Write whatif.json into the run folder.

    Raises:
        OSError: it could not be written; an earlier file is unchanged.
    """
    write_json(folder / FILE, document)
    return folder / FILE


def _better(link: Link, what: str) -> dict[str, float]:
    match what:
        case "rate":
            return {"rate_mbyte_s": min(LIMITS["rate_mbyte_s"][1], 2 * link.rate_mbyte_s)}
        case "delay":
            return {"delay_ms": link.delay_ms / 2, "jitter_ms": link.jitter_ms / 2}
        case _:
            return {"loss_pct": 0.0}


def _faster_access(plans: Mapping[str, NodePlan], node: str, key: str) -> dict[str, NodePlan]:
    faster = min(ACCESS_LIMITS[key][1], 2 * getattr(plans[node], key))
    return {node: plans[node]._replace(**{key: faster})}


def _difference(before: Sequence[float], after: Sequence[float]) -> float:
    return round(mean(before) - mean(after), 4)


def _document(one: Measured) -> RunRow:
    return {
        "folder": one.folder,
        "took_s": round(one.seconds, 4),
        "collectives_s": round(one.collectives_s, 4),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
