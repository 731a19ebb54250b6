"""The sentence above each section, made from the data of the run folder. Pure."""

from collections.abc import Sequence
from statistics import fmean

from cluster.base.wording import counted
from cluster.reporting.charts.attribution import MEANINGS
from cluster.reporting.charts.critical_link import queue_ms
from cluster.reporting.charts.helped import change_words
from cluster.reporting.charts.learning import TESTS
from cluster.reporting.charts.seconds import seconds_rows
from cluster.reporting.lanes import lateness
from cluster.reporting.link_stretches import carried_mb
from cluster.reporting.run_data import Attribution, CollectiveRow, Rank, RunData

BUSY_SHARE = 0.05  # of a link's rate; mere acknowledgements take less
TEST_DIGITS = {"test_accuracy": 4, "test_success": 3, "test_return": 1}
BY_WEIGHT = tuple(dict.fromkeys([*TEST_DIGITS, *TESTS]))  # as in tested_words, then the others
DOING = {
    "compute": "computing",
    "strategy": "packing and mixing what is exchanged",
    "transfer": "moving bytes",
    "waiting": "waiting for other ranks",
    "eval": "testing",
    "rollout": "acting in environments",
    "checkpoint": "writing checkpoints",
    "startup": "starting",
    "data": "loading data",
    "other": "with other things",
}


def seconds_words(value_s: float) -> str:
    """Return `58.4 s`, or `0.012 s` below one second."""
    return f"{value_s:.1f} s" if abs(value_s) >= 1 else f"{value_s:.3g} s"


def bytes_words(count: float) -> str:
    """Return `40.2 MB`; 1 MB is 10^6 bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def tested_words(run: RunData) -> str:
    """Return the most important figure of the last test, and the final loss; '' if there is neither."""
    names = [name for name in TEST_DIGITS if name in run.tested] or list(run.tested)[:1]
    said = [f"{n.replace('_', ' ')} {run.tested[n]:.{TEST_DIGITS.get(n, 4)}f}" for n in names[:1]]
    word, since = not_finite_since(run)
    if word:
        said += [f"loss {word}, first at step {since}"]
    elif run.final_loss is not None:
        said += [f"loss {run.final_loss:.4f}"]
    return ", ".join(said)


def last_test_words(run: RunData) -> str:
    """Return the most important figure of the last test of a run without an end; '' if there was none."""
    tests = [one for one in run.measures if one.name in BY_WEIGHT]
    last = max(tests, key=lambda one: (one.step, -BY_WEIGHT.index(one.name)), default=None)
    if last is None:
        return ""
    figure = f"{last.value:.{TEST_DIGITS.get(last.name, 4)}f}"
    return f"{last.name.replace('_', ' ')} {figure} at step {last.step}"


def lead(run: RunData) -> str:
    """Summarise the whole run."""
    endings = {"done": "done in", "failed": "it failed after", "open": "it has no recorded end"}
    took = f" {seconds_words(run.wall_s)}" if run.wall_s is not None else ""
    ended = f"{endings[run.status]}{took}" if took else endings[run.status].rpartition(" ")[0]
    ended = endings["open"] if run.status == "open" else ended
    steps = f", {counted(run.steps_done, 'step')}" if run.steps_done else ""
    tested = f": {tested_words(run)}" if tested_words(run) else ""
    return f"{run.title}; {ended}{steps}{tested}."


def where_time_went(run: RunData) -> str:
    """Name the largest buckets, as means over ranks."""
    counting = [rank for rank in run.ranks if rank.seconds]
    if not counting:
        return _nothing_counted(run)
    total_s = sum(rank.total_s for rank in counting)
    sums: dict[str, float] = {}
    for row in seconds_rows(run):
        sums[row["bucket"]] = sums.get(row["bucket"], 0.0) + row["seconds"]
    largest = sorted(sums.items(), key=lambda item: -item[1])[:3]
    if total_s <= 0 or not largest:
        return "The ranks counted no time at all."
    parts = [f"{s / total_s:.0%} {DOING[name]}" for name, s in largest]
    mean_s = total_s / len(counting)
    average = " on average" if len(counting) > 1 else ""
    return f"Of {seconds_words(mean_s)}{average}, {_counting_words(run, counting)} spent {_listed(parts)}."


def _nothing_counted(run: RunData) -> str:
    if run.steps:
        return "No rank came to its end, where it counts its seconds."
    if run.is_training and not run.steps_done:
        return "No rank came to its first step."
    return "The program counted no seconds: only our own training does."


def _counting_words(run: RunData, counting: Sequence[Rank]) -> str:
    """Return the subject of the sentence on seconds: not all ranks may have come to their end."""
    if len(counting) == 1:
        return f"{counting[0].name}, which alone counted," if len(run.ranks) > 1 else "the rank"
    is_all = len(counting) == len(run.ranks)
    return "each rank" if is_all else f"each of the {len(counting)} ranks that counted"


def slowed_by(run: RunData) -> str:
    """Name the cause that cost most."""
    worst = run.causes[0]
    share = f" ({worst.seconds / run.wall_s:.0%} of the run)" if run.wall_s else ""
    others = f"; {counted(len(run.causes) - 1, 'other cause')} cost less" if run.causes[1:] else ""
    return f"{worst.words}: that cost {seconds_words(worst.seconds)}{share}{others}."


def would_have_helped(run: RunData) -> str:
    """Name the best change, and what came of those that were tried."""
    if not run.is_predicted:
        return "What a better link would have saved was not predicted: the collectives are too many, or too large."
    best = max(run.what_if, key=lambda one: one.saves_s, default=None)
    if best is None:
        return "No single better link would have saved anything that can be reckoned."
    share = f" ({best.saves_s / run.wall_s:.0%} of the run)" if run.wall_s else ""
    text = f"{change_words(best)} would have saved {seconds_words(best.saves_s)}{share}"
    if best.achieved_s is not None:
        return f"{text}; it was tried, and saved {seconds_words(best.achieved_s)}."
    tried = sum(one.achieved_s is not None for one in run.what_if)
    return f"{text}: predicted, not tried{f' ({tried} others were)' if tried else ''}."


def path_words(run: RunData) -> str:
    """Name the carrier, else rank, longest on the critical path, and what improving it would save; '' if unknown."""
    if run.path is None:
        return ""
    wall = seconds_words(run.path.wall_s)
    who, cost_s = next(iter(run.path.by_who().items()))
    if not run.path.carrier:
        return f"{who} took {seconds_words(cost_s)} of the critical path's {wall} by itself."
    cost_s = run.path.by_who()[run.path.carrier]
    better = [one for one in run.what_if if one.carrier == run.path.carrier]
    best = max(better, key=lambda one: one.saves_s, default=None)
    how = {"rate": "twice as fast", "delay": "half as long"}
    saves = (
        f"; {how.get(best.what, best.what)} would save {seconds_words(best.saves_s)}"
        if best
        else ""
    )
    return f"{run.path.carrier} cost {seconds_words(cost_s)} of the critical path's {wall}{saves}."


def critical_link_words(run: RunData, name: str) -> str:
    """Say how full a link was, and how long its queue."""
    stretches = run.stretches[name]
    used = [one for one in stretches if one.mbyte_s > BUSY_SHARE * one.rate_mbyte_s]
    busy = [one for one in used if one.is_steady]
    steady = " and its rate did not change" if len(busy) < len(used) else ""
    busy_s = sum(one.end_s - one.start_s for one in busy)
    could_mb = sum(one.rate_mbyte_s * (one.end_s - one.start_s) for one in busy)
    carried = f"{name} carried {bytes_words(1e6 * carried_mb(stretches))}"
    share = f"{carried_mb(busy) / could_mb:.0%} of its rate" if could_mb else ""
    full = f": {share} in the {seconds_words(busy_s)} in which it was used{steady}" if share else ""
    longest = max((queue_ms(one) or 0.0 for one in stretches), default=0.0)
    queue = f"; its queue was {longest:,.0f} ms long at most" if longest >= 1 else ""
    dropped = sum(one.dropped for one in stretches)
    drops = f", and dropped {counted(round(dropped), 'packet')}" if dropped else ""
    return f"{carried}{full}{queue}{drops}."


def attributed(attribution: Attribution) -> str:
    """Name the two largest parts of the transfer, and the unexplained share."""
    transfer = {part: s for part, s in attribution.seconds.items() if part != "skew"}
    total_s = sum(transfer.values())
    if total_s <= 0:
        return "Collectives took no time that can be told apart."
    known = sorted(
        ((s, part) for part, s in transfer.items() if part != "unexplained"), reverse=True
    )
    parts = [f"{MEANINGS.get(part, part)} ({s / total_s:.0%})" for s, part in known[:2]]
    most = (
        "most of it for"
        if sum(s for s, _ in known[:2]) > total_s / 2
        else "of what is known most for"
    )
    unexplained = transfer.get("unexplained", 0.0) / total_s
    skew_s = attribution.seconds.get("skew", 0.0)
    return (
        f"Collectives took {seconds_words(total_s)} once all ranks were there, {most} {_listed(parts)}; "
        f"{unexplained:.0%} is unexplained. Until the last rank had come, {seconds_words(skew_s)} more."
    )


def timeline_words(run: RunData) -> str:
    """Name the rank that made others wait, and how often the schedule acted."""
    late = lateness(run)
    events = f" The schedule acted {counted(len(run.events), 'time')}." if run.events else ""
    if not (run.steps or run.moves or run.starts_s or run.measures):
        links = (
            "What links carried, moment by moment; the program" if run.stretches else "The program"
        )
        return f"{links} left no times of its own.{events}"
    if not late:
        return f"What each rank did, moment by moment.{events}"
    total = sum(one.times for one in late)
    worst = late[0]
    if worst.waited_s < 0.01:
        return f"At {counted(total, 'collective')}, no rank waited for another to come.{events}"
    return (
        f"{run.rank_name(worst.rank)} was the last to come to {worst.times:,} of {counted(total, 'collective')}; "
        f"until it came, the first had waited {seconds_words(worst.waited_s)} in all.{events}"
    )


def links_words(run: RunData) -> str:
    """Say whether the links are as asked, and which carried most."""
    busiest = max(run.links, key=lambda link: link.carried_bytes or 0.0, default=None)
    carried = busiest.carried_bytes if busiest else None
    most = f" {busiest.name} carried most: {bytes_words(carried)}." if busiest and carried else ""
    return f"{run.proof.sentence}{most}"


def learning_words(run: RunData) -> str:
    """Say how far the loss fell, or that it became no number, and give the figures of the last test."""
    tested = {n: v for n, v in run.tested.items() if n in TEST_DIGITS}
    figures = [f"{n.replace('_', ' ')} {v:.{TEST_DIGITS[n]}f}" for n, v in tested.items()]
    end = f"; at the end {', '.join(figures)}" if figures else ""
    (first, last), (word, since) = _ends(run), not_finite_since(run)
    if word and first is None:
        return f"The training loss was {word} at every step{end}."
    if word:
        return f"The training loss went from {first:.3f} to {word}, first at step {since}{end}."
    if first is None or last is None:
        return (
            "The loss was not recorded twice."
            if not run.tested
            else f"At the end: {tested_words(run)}."
        )
    way = "fell" if last < first else "went"
    return f"The training loss {way} from {first:.3f} to {last:.3f}{_meanwhile(run)}{end}."


def not_finite_since(run: RunData) -> tuple[str, int]:
    """Return what a rank's loss was at the last step, NaN or infinite, else ''; and the first step of such a loss."""
    told = [point for point in run.steps if point.loss is not None or point.not_finite]
    last = max((point.step for point in told), default=0)
    word = next((one.not_finite for one in told if one.step == last and one.not_finite), "")
    return word, min((one.step for one in told if one.not_finite), default=0)


def _meanwhile(run: RunData) -> str:
    odd = min((one for one in run.steps if one.not_finite), key=lambda one: one.step, default=None)
    return f"; of a rank it was {odd.not_finite} meanwhile, at step {odd.step}" if odd else ""


def _ends(run: RunData) -> tuple[float | None, float | None]:
    """Return the mean loss over ranks at the first and the last step; None where it is unknown."""
    by_step: dict[int, list[float]] = {}
    for point in run.steps:
        if point.loss is not None:
            by_step.setdefault(point.step, []).append(point.loss)
    ends = (
        [fmean(by_step[step]) for step in sorted({min(by_step), max(by_step)})] if by_step else []
    )
    return (ends[0] if ends else None), (ends[1] if len(ends) > 1 else None)


def collectives_words(rows: Sequence[CollectiveRow]) -> str:
    """Describe the collectives in the first row, which took the most time."""
    if not rows:
        return "No collectives were recorded."
    row = rows[0]
    size = bytes_words(row.size_bytes) + (" on average" if row.sizes_vary else "")
    text = f"{counted(row.count, row.kind)} of {size} ({row.purpose})"
    took = f" took {seconds_words(row.seconds)} each" if row.seconds is not None else ""
    bound = (
        f", {row.ratio:.2f} times the lower bound of gloo's algorithm on these links"
        if row.ratio
        else ""
    )
    return f"{text}{took}{bound}."


def bounds_words(source: str, unbounded: int = 0) -> str:
    """Explain the bounds of collectives.

    Args:
        source: the links as measured, or as asked.
        unbounded: the number of collectives whose bounds were not computed.
    """
    left = (
        f" To save time, the bounds of {counted(unbounded, 'collective')} were not computed."
        if unbounded
        else ""
    )
    return (
        f"Lower bounds on the links as {source}. “gloo at best”: gloo's algorithm, a ring in rank order (other"
        f" collectives send directly). “links at best”: any algorithm, over all links of each node at once.{left}"
    )


def failed_words(run: RunData) -> str:
    """Say why the run failed, as far as is known, and which ranks did."""
    if run.status == "open":
        return "The run has no recorded end: it was refused, interrupted or killed. The ends of its logs:"
    logs = "the end of its log:" if run.failed == 1 else "the ends of their logs:"
    if run.failed > len(run.tails):
        logs = f"the ends of the logs of {len(run.tails)} of them:"
    if run.failure:
        went_on = [f"{tail.rank}, which {tail.how}" for tail in run.tails]
        return f"{run.failure}. The run went on without {_listed(went_on)}; {logs}"
    if run.root_cause is None:
        names = [f"{tail.rank} {tail.how}" for tail in run.tails]
        first = "which was the first is not known; " if run.failed > 1 else ""
        return f"{_listed(names[:3])}{' …' if len(names) > 3 else ''}; {first}{logs}"
    others = f", of {run.failed} ranks that failed" if run.failed > 1 else ""
    who = run.root_cause.rank
    said = (
        f"{who} {run.root_cause.words}: the root cause{others}"
        if who
        else f"The run {run.root_cause.words}"
    )
    return f"{said}; {logs}"


def experience_words(run: RunData) -> str:
    """Say how much experience reached the learner."""
    figures = run.experience.figures if run.experience else {}
    steps, pieces = figures.get("env_steps", 0.0), figures.get("pieces", 0.0)
    age = figures.get("staleness_updates median")
    stale = f"; half of it was {age:g} updates old or older" if age is not None else ""
    return f"The actors' environments made {steps:,.0f} steps, which came in {pieces:,.0f} pieces{stale}."


def _listed(parts: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
