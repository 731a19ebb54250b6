"""The runs of a sweep on the links of profiles that it did not use: their figures, as predicted.

What ranks learn step by step does not depend on their links, as long as each waits for the others. So a run on quick
links, and the model of collectives (cluster/accounting/other_links.py), tell when the same training would have reached
its target on slow ones, where it would take hours.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cluster.accounting.metrics_table import Row
from cluster.accounting.other_links import OtherLinks, PredictedRun, RunModel
from cluster.base.errors import UsageError
from cluster.links.profiles import Profile
from cluster.run.past_run import consistent, links_by, read_past_run
from cluster.sweeps.cells import Cell
from cluster.sweeps.figures import Figures, steps_of
from cluster.sweeps.ranking import Outcome


def predicted_outcomes(
    outcome: Outcome, folder: Path, profiles: Sequence[Profile]
) -> tuple[list[Outcome], list[str]]:
    """Return what a run would have come to on the links of each profile, and why it cannot be told of others.

    Args:
        outcome: of the run, with figures.
        folder: its run folder.
        profiles: other profiles.
    """
    found: list[Outcome] = []
    reasons: list[str] = []
    figures = outcome.figures
    assert figures is not None
    try:
        run = read_past_run(folder)
        with consistent(run):
            model, steps = RunModel(run.recorded), steps_of(folder)
            for profile in profiles:
                others = links_by(run, profile)
                if reason := model.obstacle_on(others):
                    reasons.append(f"{folder.name} on {profile.name}: {reason}")
                else:
                    cell = _cell(outcome.cell, profile, others)
                    found.append(Outcome(cell, _figures(figures, model.on(others), steps)))
    except UsageError as error:  # no record of collectives, links that were not shaped
        reasons.append(error.message)
    return found, reasons


def _cell(cell: Cell, profile: Profile, others: OtherLinks) -> Cell:
    """Return the cell of a predicted run: its profile's name says that it is."""
    how = "predicted without losses and jitter" if others.is_rough else "predicted"
    name = f"{profile.name} ({how}, from {cell.problem.profile})"
    return replace(cell, problem=replace(cell.problem, profile=name))


def _figures(figures: Figures, there: PredictedRun, steps: Sequence[Row]) -> Figures:
    """Return a run's figures on other links; `steps` are rows of its metrics."""
    found = replace(figures, wall_s=_more(figures.wall_s, there.longer_s))
    own = [row for row in steps if row["rank"] == 0]
    if not own or figures.loop_s is None:
        return found
    began = own[0]["time"] - own[0]["elapsed_s"]
    longer_s = there.longer_between_s(began, own[-1]["time"])
    reached = [row["time"] for row in own if row["step"] == figures.reached_step]
    later_s = there.longer_between_s(began, reached[0]) if reached else 0.0
    return replace(
        found,
        reached_s=_more(figures.reached_s, later_s),
        loop_s=figures.loop_s + longer_s,
        communication_share=_share(figures, longer_s),
    )


def _more(seconds: float | None, more_s: float) -> float | None:
    return None if seconds is None else seconds + more_s


def _share(figures: Figures, longer_s: float) -> float | None:
    """Return the share of the time that a rank waits, if it computes as long as it did."""
    loop_s, share = figures.loop_s, figures.communication_share
    if loop_s is None or share is None or loop_s + longer_s <= 0:
        return None
    return round(max(0.0, (share * loop_s + longer_s) / (loop_s + longer_s)), 3)
