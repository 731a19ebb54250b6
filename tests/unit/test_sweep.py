"""A sweep over fake nodes: what is run, what is known already, and how variants are ranked."""

import json
import math
import os
import random
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import run_folders
from books import end_line

from cluster import sweep
from cluster.accounting.collective_stats import all_sent
from cluster.accounting.summary import byte_summary
from cluster.base.console import Console
from cluster.base.errors import ContractUndecided, RunFailed
from cluster.reporting.write import write_page
from cluster.run.runner import Run
from cluster.sweeps import figures
from cluster.sweeps.cells import Cell, Problem
from cluster.sweeps.figures import Figures, Target, make_figures
from cluster.sweeps.page import lead_words, ranking_rows, sweep_page
from cluster.sweeps.ranking import Outcome, bootstrap_interval, rank, ratio_interval
from cluster.sweeps.records import alone_in
from cluster.sweeps.student import student_t

WAN = Problem("", "wan", "full", "auto")
TARGET = Target("test_accuracy", 0.85)
SECONDS = {"total": 50.0, "startup": 5.0, "eval": 5.0, "transfer": 20.0, "waiting": 4.0}
SUMMARY = {"wall_s": 61.0, "seconds": {"node1": SECONDS}, "host": {"limits": []}}


def steps(accuracies):
    """Return the steps of two ranks: one second and 1 MB each; every second step is tested."""
    rows = []
    for step in range(1, 2 * len(accuracies) + 1):
        for rank_number in (0, 1):
            row = {"step": step, "rank": rank_number, "elapsed_s": float(step)}
            rows.append(row | {"sent_bytes_so_far": 10**6 * step})
        if step % 2 == 0:
            rows[-2] |= {"test_accuracy": accuracies[step // 2 - 1], "eval_s": 3.0}
    return rows


def test_a_target_is_reached_at_the_step_of_which_a_test_first_says_so():
    found = make_figures(steps([0.5, 0.86, 0.84]), SUMMARY, TARGET, 12e6)
    assert (found.reached_step, found.reached_s, found.reached_mbyte) == (4, 4.0, 8.0)
    assert (found.best, found.carried_mbyte, found.loop_s) == (0.86, 12.0, 40.0)
    assert found.communication_share == 0.6


def test_what_a_learner_and_its_actors_sent_until_a_target_is_not_known():
    """Only the learner writes lines of steps, so only its own bytes are in them."""
    own = [row for row in steps([0.5, 0.86]) if row["rank"] == 0]
    found = make_figures(own, SUMMARY | {"experience": {"pieces": 7}}, TARGET, 12e6)
    assert (found.reached_step, found.reached_s, found.reached_mbyte) == (4, 4.0, None)
    assert make_figures(own, SUMMARY | {"experience": None}, TARGET, 12e6).reached_mbyte == 4.0


def test_what_never_got_there_says_how_far_it_came():
    found = make_figures(steps([0.5, 0.7]), SUMMARY, TARGET, 0)
    assert found.reached_s is found.reached_step is found.reached_mbyte is None
    assert found.best == 0.7


def test_a_loss_is_to_be_low():
    target = Target("validation_loss", 2.7)
    assert target.is_reached(2.6) and not target.is_reached(2.8)
    assert target.best([3.0, 2.0, 2.5]) == 2.0


def test_a_program_without_metrics_has_its_wall_time():
    found = make_figures([], {"wall_s": 3.0, "seconds": {}}, None, 0)
    assert (found.wall_s, found.loop_s, found.target) == (3.0, None, None)


def ends_of_tests(ranks):
    """Return the end lines of a ring of ranks: a test's all-reduce of 1 MB, and a step's of 2 MB."""
    sums = {
        rank: [
            {"purpose": purpose, "bytes": size, "waited_s": 0.1}
            | {"to": {str((rank - 1) % ranks): {"bytes": size, "messages": 4}}}
            for purpose, size in (("eval", 10**6), ("train", 2 * 10**6))
        ]
        for rank in range(ranks)
    }
    return {f"rank{rank}": end_line(collectives=own) for rank, own in sums.items()}


@pytest.mark.parametrize(
    ("nodes", "hops", "crossings"),
    [
        (["node1", "node2"], 1, 2),
        (["node1", "node1", "node2", "node2"], 1, 2),  # the other two sends stay within a node
        (["node1", "node2"], 2, 2),  # through a third node: each byte is carried twice
    ],
)
def test_what_tests_sent_is_told_from_what_training_did(nodes, hops, crossings):
    way = {(a, b): [(a, b)] * hops for a in set(nodes) for b in set(nodes) if a != b}
    ends = ends_of_tests(len(nodes))
    sent, tests = all_sent(ends, nodes), all_sent(ends, nodes, "eval")
    nothing = byte_summary({}, sent, tests, way)
    assert nothing["total"] is None and nothing["measured_over_expected"] is None
    found = byte_summary({"node1->node2": 10**8}, sent, tests, way)
    least = hops * crossings * 10**6
    assert least < found["tests"] < 1.1 * least
    assert found["tests"] == pytest.approx(found["expected"] / 3, rel=0.05)
    assert figures.training_bytes({"bytes": found}) == 10**8 - found["tests"]
    assert figures.training_bytes({"bytes": {"total": 5}}) is None  # a run of an older version


def test_metrics_of_a_program_that_lack_a_bucket_are_no_error():
    found = make_figures([], {"seconds": {"node1": {"total": 5.0, "eval": 1.0}}}, None, 0)
    assert (found.loop_s, found.communication_share) == (4.0, 0.0)
    found = make_figures([], {"seconds": {"node1": {"eval": 1.0}}}, None, 0)
    assert (found.loop_s, found.communication_share) == (None, None)


def outcomes(problem=WAN, **seconds):
    """Return outcomes of variants, with the seconds of each seed: None failed, a tuple was limited by the host."""
    found = []
    for name, values in seconds.items():
        for seed, value in enumerate(values):
            cell = Cell(problem, name, 1, seed, ())
            if value is None:
                found.append(Outcome(cell, None))
            elif isinstance(value, tuple):
                found.append(Outcome(cell, Figures(wall_s=value[0], limits=("late",))))
            else:
                reached = None if math.isinf(value) else value
                found.append(Outcome(cell, Figures(TARGET, reached_s=reached)))
    return found


def test_variants_are_ranked_by_medians_and_told_apart_by_pairs_of_one_seed():
    """For each seed `slow` takes twice as long, although its fastest run beats the slowest of `fast`."""
    lines = rank(outcomes(slow=[20, 40, 60, 80], fast=[10, 20, 30, 40]))
    assert [(line.variant, line.verdict) for line in lines] == [
        ("fast", "best"),
        ("slow", "slower"),
    ]
    assert (lines[1].median_s, lines[1].ratio) == (50, pytest.approx(2))
    assert lines[1].ratio_interval == pytest.approx((2, 2))
    assert lines[0].interval_s[0] >= 10 and lines[0].interval_s[1] <= 40
    assert lines[0].ratio is None


def test_what_is_now_faster_and_now_slower_cannot_be_told_apart():
    lines = rank(outcomes(a=[10, 20, 30], b=[12, 18, 33]))
    assert lines[1].verdict == "cannot be told apart from the best"
    assert "no other is told apart from it" in lead_words(lines)


def test_of_one_pair_nothing_is_told_apart():
    lines = rank(outcomes(a=[10], b=[100]))
    assert (lines[1].verdict, lines[1].ratio_interval) == ("too few runs", None)
    assert lines[1].ratio == pytest.approx(10)


def by_seed(ratios):
    """Return the ratios of pairs over one draw of links, by repetition."""
    return {(1, seed): ratio for seed, ratio in enumerate(ratios)}


def test_the_interval_of_ratios_is_students():
    """Logarithms 0, 1 and 2: mean 1, deviation 1; 4.303 / sqrt(3) = 2.484."""
    found = ratio_interval(by_seed([math.exp(0), math.exp(1), math.exp(2)]))
    assert [math.log(end) for end in found] == pytest.approx([1 - 2.484, 1 + 2.484], abs=1e-3)
    assert ratio_interval(by_seed([2.0])) is None


def test_equals_are_told_apart_about_once_in_twenty_times():
    """With three pairs, too, an interval of 95 % is wrong in about 5 % of cases."""
    draw = random.Random(1)
    found = [
        ratio_interval(by_seed([draw.lognormvariate(0, 0.2) for _ in range(3)]))
        for _ in range(2000)
    ]
    wrong = sum(not low <= 1 <= high for low, high in found) / len(found)
    assert 0.035 < wrong < 0.065


@pytest.mark.parametrize(
    ("tails", "freedom", "t"),
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 5, 2.571), (0.05, 20, 2.086), (0.01, 4, 4.604)],
)
def test_students_t_is_that_of_tables(tails, freedom, t):
    """NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2."""
    assert student_t(tails, freedom) == pytest.approx(t, abs=5e-4)


def test_of_equal_variants_one_is_called_slower_in_at_most_one_of_twenty_sweeps(monkeypatch):
    """By intervals of 95 % each, it is one in four: the best of six is chosen from the same runs."""
    monkeypatch.setattr("cluster.sweeps.ranking.RESAMPLES", 3)
    draw, wrong, sweeps = random.Random(1), 0, 400
    for _ in range(sweeps):
        seconds = {f"v{n}": [draw.lognormvariate(3, 0.05) for _ in range(3)] for n in range(6)}
        wrong += any(line.verdict == "slower" for line in rank(outcomes(**seconds)))
    assert wrong / sweeps <= 0.05


def crossed(draw, links, seeds, link_scatter, seed_scatter, scatter):
    """Return outcomes of two equal variants over draws of links and seeds, each of which suits one or the other."""
    found = []
    for name in ("a", "b"):
        by_link = [draw.gauss(0, link_scatter) for _ in range(links)]
        by_seed = [draw.gauss(0, seed_scatter) for _ in range(seeds)]
        for link in range(links):
            for seed in range(seeds):
                log = by_link[link] + by_seed[seed] + draw.gauss(0, scatter)
                figures = Figures(loop_s=100 * math.exp(log))
                found.append(Outcome(Cell(WAN, name, link, seed, ()), figures))
    return found


@pytest.mark.parametrize(
    ("link_scatter", "seed_scatter", "scatter"),
    [(0.05, 0, 0.02), (0, 0.05, 0.001), (0.05, 0.05, 0.02), (0, 0, 0.05)],
)
@pytest.mark.parametrize(("links", "seeds"), [(2, 5), (5, 2), (3, 3)])
def test_pairs_that_share_links_or_a_seed_are_not_independent(
    monkeypatch, links, seeds, link_scatter, seed_scatter, scatter
):
    """Taken for ten pairs of their own, they have one of two equal variants called slower in half of the sweeps."""
    monkeypatch.setattr("cluster.sweeps.ranking.RESAMPLES", 3)
    draw, wrong, sweeps = random.Random(1), 0, 300
    for _ in range(sweeps):
        lines = rank(crossed(draw, links, seeds, link_scatter, seed_scatter, scatter))
        wrong += lines[1].verdict != "cannot be told apart from the best"
    assert wrong / sweeps <= 0.08  # 5 %, and three standard deviations of 300 sweeps


def test_over_several_draws_of_links_a_clear_difference_is_told():
    found = []
    for name, factor in (("a", 1.0), ("b", 2.0)):
        for link, seed in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)):
            figures = Figures(loop_s=10 * link * seed * factor)
            found.append(Outcome(Cell(WAN, name, link, seed, ()), figures))
    lines = rank(found)
    assert (lines[1].verdict, lines[1].ratio) == ("slower", pytest.approx(2))
    assert lines[1].ratio_interval == pytest.approx((2, 2))


def test_where_links_were_drawn_several_times_pairs_over_one_draw_are_too_few():
    """Of b, all runs over the second draw failed."""
    pairs = [("a", 1, 10), ("a", 2, 10), ("b", 1, 20)]
    found = [
        Outcome(Cell(WAN, name, link, seed, ()), Figures(loop_s=seconds + seed))
        for name, link, seconds in pairs
        for seed in (1, 2, 3)
    ]
    line = rank(found)[1]
    assert (line.variant, line.ratio_interval, line.verdict) == ("b", None, "too few runs")


def test_intervals_hold_for_all_pairs_together():
    lines = rank(outcomes(a=[10, 20, 30], b=[11, 21, 33], c=[100, 220, 290]))
    ratios = by_seed([11 / 10, 21 / 20, 33 / 30])
    assert lines[1].ratio_interval == ratio_interval(ratios, comparisons=3)
    assert lines[1].ratio_interval[1] > ratio_interval(ratios)[1]
    assert [line.verdict for line in lines[1:]] == ["cannot be told apart from the best", "slower"]


def test_two_pairs_of_many_variants_tell_nothing_apart():
    """The interval of one pair of 55 reaches beyond the largest float."""
    lines = rank(outcomes(**{f"v{n}": [10 + n, 10 * (n + 1) ** 3] for n in range(11)}))
    assert {line.verdict for line in lines[1:]} == {"cannot be told apart from the best"}
    assert all(math.isfinite(end) for line in lines[1:] for end in line.ratio_interval)


def test_the_best_is_chosen_by_pairs_not_by_the_seeds_that_were_left_to_it():
    """B takes half of A's time on each seed; the host limited B on the seeds on which both are quick."""
    a, b = [10, 11, 12, 13, 60, 61, 62], [(5,), (5.5,), (6,), (6.5,), 30, 30.5, 31]
    lines = rank(outcomes(a=a, b=b))
    assert [(line.variant, line.verdict) for line in lines] == [("b", "best"), ("a", "slower")]
    assert lines[1].ratio == pytest.approx(2)
    assert lead_words(lines) == "On wan b was first, 30.5 s; a took 2.00 times as long."


@pytest.mark.parametrize(
    ("more", "said"), [(1.044, "1.04"), (1.0044, "1.004"), (1.996, "2.00"), (1.00001, "1.00001")]
)
def test_what_is_slower_is_never_said_to_take_as_long(more, said):
    best = [100.0, 100.2, 100.3]
    lines = rank(outcomes(fedavg=best, ddp=[more * s for s in best]))
    words = f"On wan fedavg was first, 100.2 s; ddp took {said} times as long."
    assert lead_words(lines) == words


def test_variants_that_beat_one_another_in_a_circle_are_told():
    """Over seeds 1 to 9, a beats b, b beats c, and c beats a, each on three seeds of their own."""
    late = (1,)
    lines = rank(
        outcomes(
            a=[10, 10.1, 10.2, late, late, late, 20, 20.1, 20.4],
            b=[20, 20.1, 20.2, 10, 10.1, 10.3, late, late, late],
            c=[late, late, late, 20, 20.1, 20.2, 10, 10.1, 10.3],
        )
    )
    assert lines[0].verdict == "best"
    assert sorted(line.verdict for line in lines[1:]) == [
        "quicker than the best in their pairs",
        "slower",
    ]


def test_a_pair_of_which_one_run_missed_the_target_has_no_ratio():
    """The runs that reached it are those on easy seeds."""
    inf = math.inf
    lines = rank(outcomes(a=[10, 11, 12, 40, 41], b=[10.1, 11, 12.1, inf, inf]))
    assert [(line.variant, line.ratio, line.ratio_interval) for line in lines] == [
        ("a", None, None),
        ("b", None, None),
    ]
    assert lines[1].verdict == "some pairs missed the target"
    assert ranking_rows(lines)[1][-1] == "some pairs missed the target, reached by 3 of 5"
    assert lead_words(lines) == (
        "On wan a was first, 12.0 s; not compared, as some pairs missed the target: b."
    )


def test_the_lead_says_why_others_are_not_told_apart():
    inf = math.inf
    lines = rank(
        outcomes(
            a=[10, 11, 12],
            b=[inf, inf, inf],
            c=[(1,), (1,), (1,)],
            d=[None] * 3,
            e=[10.1, 11.2, 11.9],
            f=[11, None, None],
            g=[30, 34, 35],
        )
    )
    assert lead_words(lines) == (
        "On wan a was first, 11.0 s; g took 3.00 times as long; not told apart from it: e; short of the target: b; "
        "not compared, for too few runs: f; not ranked, as the host was the limit: c; without a run that is done: d."
    )


def test_seconds_are_compared_as_measured_and_rounded_only_to_be_shown():
    def run(variant, seed, reached_s):
        row = {"step": 1, "rank": 0, "elapsed_s": reached_s, "sent_bytes_so_far": 0}
        found = make_figures([row | {"test_accuracy": 0.9}], {}, TARGET, 0)
        return Outcome(Cell(WAN, variant, 1, seed, ()), found)

    some = [run("a", 1, 1.24), run("a", 2, 1.24), run("b", 1, 1.26), run("b", 2, 1.254)]
    lines = rank(some)
    assert lines[1].ratio_interval == ratio_interval(by_seed([1.26 / 1.24, 1.254 / 1.24]))
    assert lines[1].verdict == "cannot be told apart from the best"
    assert rank([run("a", 1, 0.04), run("b", 1, 0.02)])[1].ratio == pytest.approx(2)
    page = sweep_page("x", lines, some, 4, ["runs/x"] * 4, "")
    assert [row[2] for row in page.sections[1].tables[0].rows] == [1.24, 1.24, 1.26, 1.254]


def test_a_test_of_a_diverged_training_is_no_best_one():
    nan = math.nan
    assert TARGET.best([nan, 0.7, math.inf]) == TARGET.best([0.7, nan]) == 0.7
    assert TARGET.best([nan, nan]) is None
    assert not TARGET.is_reached(nan)


def test_who_does_not_reach_the_target_in_most_runs_stands_behind_all_who_do():
    inf = math.inf
    lines = rank(outcomes(never=[inf, inf, inf], late=[50, 60, 70], once=[10, inf, inf]))
    assert [line.variant for line in lines][0] == "late"
    assert {line.verdict for line in lines[1:]} == {"target not reached"}
    rows = {row[1]: row for row in ranking_rows(lines)}
    assert rows["once"][-1] == "target not reached, reached by 1 of 3"
    assert rows["once"][3] is None


def test_runs_that_the_host_limited_or_that_failed_are_counted_and_not_ranked():
    lines = rank(outcomes(a=[10, (1,), None], b=[(1,), (2,), (3,)], c=[None, None, None]))
    found = {line.variant: line for line in lines}
    assert (found["a"].runs, found["a"].limited, found["a"].failed) == (1, 1, 1)
    assert found["a"].median_s == 10
    assert (found["b"].verdict, found["b"].limited) == ("the host was the limit", 3)
    assert (found["c"].verdict, found["c"].failed) == ("no run is done", 3)


def test_a_run_whose_accounts_are_lost_is_not_ranked_by_its_wall_time():
    """Which has startup and tests in it; the others have seconds of training."""
    accounts = {"a": [10.0, 11.0, 12.0], "b": [None] * 3, "c": [10.5, 11.1, None]}
    found = [
        Outcome(Cell(WAN, name, 1, seed, ()), Figures(loop_s=loop_s, wall_s=20.0))
        for name, own in accounts.items()
        for seed, loop_s in enumerate(own)
    ]
    a, c, b = rank(found)
    assert (a.variant, a.runs, a.unknown) == ("a", 3, 0)
    assert (c.variant, c.runs, c.unknown, c.median_s) == ("c", 2, 1, 10.8)
    assert (b.variant, b.runs, b.unknown, b.median_s) == ("b", 0, 3, None)
    assert b.verdict == "its seconds of training are unknown"
    assert ranking_rows([a, c, b])[1][-1].endswith(", 1 run without seconds of training")
    assert "not ranked, as the seconds of training are unknown: b" in lead_words([a, c, b])


def test_scripts_without_seconds_of_training_are_ranked_by_wall_time():
    found = [
        Outcome(Cell(WAN, name, 1, 1, ()), Figures(wall_s=s))
        for name, s in (("a", 3.0), ("b", 2.0))
    ]
    assert [(line.variant, line.median_s, line.unknown) for line in rank(found)] == [
        ("b", 2.0, 0),
        ("a", 3.0, 0),
    ]


def test_each_problem_has_a_best_of_its_own():
    mobile = Problem("", "mobile", "full", "auto")
    lines = rank([*outcomes(a=[1, 1, 1], b=[2, 2, 2]), *outcomes(mobile, a=[9, 9, 9], b=[3, 3, 3])])
    assert [(one.problem.profile, one.variant, one.verdict) for one in lines] == [
        ("wan", "a", "best"),
        ("wan", "b", "slower"),
        ("mobile", "b", "best"),
        ("mobile", "a", "slower"),
    ]
    assert lead_words(lines) == (
        "On wan a was first, 1.0 s; b took 2.00 times as long. "
        "On mobile b was first, 3.0 s; a took 3.00 times as long."
    )


def test_an_interval_holds_the_median_and_is_the_same_each_time():
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    low, high = bootstrap_interval(values)
    assert 1.0 <= low <= 2.8 <= high <= 9.0
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval([1.0, 2.0]) is None


def test_the_page_has_every_run_and_names_those_of_which_the_host_was_the_limit():
    some = outcomes(a=[10, 20, 30], b=[20, (1,), None])
    page = sweep_page("quick", rank(some), some, 8, ["runs/x"] * 6, "python -m cluster.sweep x")
    ranking, runs, _ = page.sections
    assert len(ranking.tables[0].rows) == 2 and len(runs.tables[0].rows) == 6
    assert page.notes == ["the host was the limit, not ranked: wan, full, b, links 1, seed 1"]
    assert "6 of 8 runs have been made so far." in page.lead
    assert [row["label"] for row in ranking.charts[0].data["heat"]] == ["20 s", "20 s"]


def test_names_that_are_no_text_are_written_as_what_they_are(tmp_path):
    odd = os.fsdecode(b"caf\xe9")
    some = outcomes(Problem("", odd, "full", "auto"), **{odd: [10, 20], "b": [(20,), 30]})
    page = sweep_page(odd, rank(some), some, 4, [odd] * 4, f"python -m cluster.sweep --out {odd}")
    write_page(page, tmp_path, "sweep")
    text = (tmp_path / "sweep.md").read_text()
    assert "caf" in text and "udce9" in text


class FakeCluster:
    """Launches that leave folders as a run does; `goes_wrong` makes some of them fail."""

    def __init__(self, folder):
        self.folder, self.launched, self.ups, self.goes_wrong = folder, [], 0, {}
        self.links_changed = {}  # part of a command -> what the run's summary says
        self.console, self.alone = Console(), nullcontext()
        self.engine, self.there = self, None  # the number of nodes that are up

    def __call__(self, name, *, nodes, **said):
        self.name, self.request = name, SimpleNamespace(size=nodes)
        return self

    def cluster(self, name):
        return self.there and SimpleNamespace(size=self.there)

    def up(self):
        self.ups += 1

    def close(self):
        pass

    def launch(self, program, *, verify, nproc_per_node):
        words = " ".join(program.argv)
        self.launched.append(words)
        for part, error in self.goes_wrong.items():
            if part in words:
                raise error
        folder = run_folders.make_run(self.folder / f"run{len(self.launched)}", nodes=2)
        summary = json.loads((folder / "summary.json").read_text()) | {"folder": str(folder)}
        for part, said in self.links_changed.items():
            summary |= {"links_changed": said} if part in words else {}
        return Run(folder, summary)


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    cluster = FakeCluster(tmp_path / "runs")
    monkeypatch.setattr("cluster.api.Cluster", cluster)
    monkeypatch.setattr(sweep, "replace", lambda request, link_spec: link_spec)
    return cluster


@pytest.fixture
def run(tmp_path, capsys):
    """A function that runs the verb and returns its exit code and what --json prints."""

    def run(*words):
        short = ["--nodes", "2", "--profile", "mobile,wan", "--strategy", "ddp,gossip"]
        code = sweep.main([*short, "--out", str(tmp_path / "out"), "--json", *words])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run


@pytest.mark.parametrize(
    ("there", "words", "code"), [(5, [], 2), (5, ["--nodes", "2"], 0), (3, [], 0)]
)
def test_nodes_are_removed_only_if_a_sweep_says_how_many_it_is_for(
    cluster, tmp_path, capsys, there, words, code
):
    cluster.there = there
    short = ["--profile", "wan", "--strategy", "ddp", "--out", str(tmp_path / "out")]
    assert sweep.main([*short, *words]) == code
    said = capsys.readouterr().err
    assert ("has 5 nodes, a sweep without `nodes` is for 3" in said) == (code == 2)
    assert bool(cluster.launched) == (code == 0)


def test_what_is_done_is_not_run_again(cluster, run):
    code, found = run("--seed", "1,2")
    assert (code, len(cluster.launched), found["known"]) == (0, 8, 8)
    code, again = run("--seed", "1,2")
    assert (code, len(cluster.launched)) == (0, 8)
    assert again == found
    run("--seed", "1,2,3")
    assert len(cluster.launched) == 12


def test_another_target_ranks_the_same_runs_anew(cluster, run):
    _, low = run("--target", "test_accuracy=0.5")
    _, high = run("--target", "test_accuracy=0.99")
    assert len(cluster.launched) == 4
    assert {row["verdict"] for row in high["ranking"]} == {"target not reached"}
    assert low["runs"][0]["figures"]["reached_step"] == 10


def test_one_that_is_stopped_goes_on_where_it_was(cluster, run, tmp_path):
    cluster.goes_wrong["gossip"] = KeyboardInterrupt()
    code, _ = run("--seed", "1,2")
    assert code == 130
    made = len(cluster.launched) - 1
    assert len(list((tmp_path / "out" / "cells").iterdir())) == made
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["known"] == made
    cluster.goes_wrong.clear()
    code, found = run("--seed", "1,2")
    assert (code, len(cluster.launched), found["known"]) == (0, 8 + 1, 8)


def test_one_that_is_stopped_does_not_predict_first(cluster, run, monkeypatch):
    predicted = []
    monkeypatch.setattr(sweep, "_predict", lambda *given: predicted.append(given) or [])
    cluster.goes_wrong["gossip"] = KeyboardInterrupt()
    assert run("--predict", "poor")[0] == 130
    assert predicted == []
    cluster.goes_wrong.clear()
    assert run("--predict", "poor")[0] == 0
    assert len(predicted) == 1


def test_a_second_sweep_into_the_same_folder_is_refused(cluster, run, tmp_path):
    (tmp_path / "out").mkdir()
    with alone_in(tmp_path / "out"):
        code, text = run()
    assert code == 1 and "out is in use: another sweep writes its records there" in text
    assert cluster.launched == []
    assert run("--dry-run")[0] == 0 and run()[0] == 0


@pytest.mark.parametrize("error", [RunFailed("rank 1 failed"), ContractUndecided("a busy host")])
def test_what_failed_stays_so_and_is_run_again_on_request(cluster, run, error):
    cluster.goes_wrong["gossip"] = error
    code, found = run()
    assert (code, found["failed"], found["known"]) == (1, 2, 4)
    assert [row["reason"] for row in found["runs"] if row["status"] == "failed"] == [str(error)] * 2
    cluster.goes_wrong.clear()
    assert run()[0] == 1 and len(cluster.launched) == 4
    code, found = run("--retry-failed")
    assert (code, found["failed"], len(cluster.launched)) == (0, 0, 6)


def test_a_run_whose_links_changed_has_failed_and_is_run_again_on_request(cluster, run):
    cluster.links_changed["gossip"] = "links were applied again (node2)"
    code, found = run()
    assert (code, found["failed"], found["known"]) == (1, 2, 4)
    failed = [row for row in found["runs"] if row["status"] == "failed"]
    assert {row["reason"] for row in failed} == {
        "its links changed while it ran: links were applied again (node2)"
    }
    assert all(row["folder"] and row["figures"] is None for row in failed)
    assert {row["verdict"] for row in found["ranking"] if row["variant"] == "gossip"} == {
        "no run is done"
    }
    cluster.links_changed.clear()
    assert run("--retry-failed")[0] == 0 and len(cluster.launched) == 6


def test_of_an_older_sweep_too_a_run_whose_links_changed_has_failed(cluster, run, tmp_path):
    run()
    for path in (tmp_path / "out" / "cells").iterdir():
        said = json.loads(path.read_text())
        assert said["status"] == "done"
        said["summary"]["links_changed"] = "node2 was restarted"
        path.write_text(json.dumps(said))
    code, found = run()
    assert (code, found["failed"], len(cluster.launched)) == (1, 4, 4)


def test_a_run_whose_folder_is_gone_is_run_again(cluster, run):
    _, found = run()
    (cluster.folder / "run1").rename(cluster.folder / "elsewhere")
    run()
    assert len(cluster.launched) == 5


def test_links_are_made_only_where_they_change(cluster, run):
    run("--seed", "1")
    assert 2 <= cluster.ups <= len(cluster.launched)
    assert cluster.request.profile.name in ("mobile", "wan")


def test_a_dry_run_does_nothing_and_says_what_is_known(cluster, run, tmp_path):
    code, found = run("--dry-run")
    assert (code, cluster.launched, (tmp_path / "out").exists()) == (0, [], False)
    assert [cell["state"] for cell in found["cells"]] == ["to run"] * 4
    run()
    _, found = run("--dry-run")
    assert [cell["state"] for cell in found["cells"]] == ["known"] * 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "Q=3"], "Q"),
        (["--stepz", "3"], "--stepz"),
        (["--profile", "nowhere"], "nowhere"),
        (["--predict", "nowhere"], "nowhere"),
        (["--topology", "knot"], "knot"),
    ],
)
def test_whatever_cannot_be_is_refused_before_anything_is_started(cluster, run, words, said):
    code, text = run(*words)
    assert code == 2 and said in text
    assert (cluster.launched, cluster.ups) == ([], 0)


def test_a_record_that_is_damaged_is_one_line(cluster, run, tmp_path):
    run()
    path = next((tmp_path / "out" / "cells").iterdir())
    for damaged in ('{"status": "done"', "[" * 100_000):
        path.write_text(damaged)
        code, text = run()
        assert code == 2 and f"{path} cannot be read" in text


def test_a_record_of_a_run_folder_that_cannot_be_is_none(cluster, run, tmp_path):
    run("--seed", "1")
    for path in (tmp_path / "out" / "cells").iterdir():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"folder": "x" * 300}))
    code, found = run("--seed", "1")
    assert (code, found["known"]) == (0, 4)
    assert len(cluster.launched) == 8


def test_records_whose_folder_cannot_be_are_no_damaged_ones(cluster, run, tmp_path):
    (tmp_path / "out").touch()
    code, text = run()
    assert code == 1 and "out cannot be written: File exists" in text


def test_a_program_of_ones_own_is_known_by_its_files(cluster, run, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    file = tmp_path / "sweep.yml"
    file.write_text(
        f"profile: wan\nnodes: 2\nprogram: [{folder}/train.py]\noptions: {{speed: [1, 2]}}\n"
    )
    out = ["--out", str(tmp_path / "own")]
    assert sweep.main([str(file), *out]) == 0
    both = ["python3 train.py --speed 1", "python3 train.py --speed 2"]
    assert sorted(cluster.launched) == both
    assert sweep.main([str(file), *out]) == 0
    assert len(cluster.launched) == 2
    (folder / "train.py").write_text("print(2)")
    assert sweep.main([str(file), *out]) == 0
    assert len(cluster.launched) == 4
    assert sweep.main([str(file), "--out", str(folder / "out")]) == 2


def test_a_check_that_takes_long_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sweep, "MANY", 1)
    sweep.main(["--profile", "wan", "--strategy", "ddp,gossip", "--seed", "1,2", "--dry-run"])
    assert "checking the arguments of 2 trainings" in capsys.readouterr().err
    sweep.main(["--profile", "wan", "--strategy", "ddp", "--seed", "1,2", "--dry-run"])
    assert "checking" not in capsys.readouterr().err
