"""Mutations of the links' request, and of their changes during a run."""

from mutants.mutation import Mutation

DRAW, RUNNER = "cluster/links/link.py", "cluster/schedule/runner.py"
OF_DRAW, OF_RUNNER = "tests/unit/test_links.py::", "tests/unit/test_schedule_runner.py::"

LINKS = (
    Mutation(
        "links drawn without their seed",
        DRAW,
        '"/".join((str(seed), *place, field))',
        '"/".join((*place, field))',
        OF_DRAW + "test_the_same_seed_draws_the_same_links_and_another_seed_others",
    ),
    Mutation(
        "half of the jitter drawn",
        DRAW,
        "delay_ms * jitter_pct / 100",
        "delay_ms * jitter_pct / 200",
        OF_DRAW + "test_every_value_lies_in_its_profiles_range",
    ),
    Mutation(
        "a region's round trip as one way",
        DRAW,
        "(pair.rtt_ms / 2, pair.rtt_ms / 2)",
        "(pair.rtt_ms, pair.rtt_ms)",
        "tests/unit/test_regions.py::test_nodes_take_regions_in_their_order",
    ),
    Mutation(
        "a path as fast as its fastest link",
        DRAW,
        "rate_mbyte_s=min(link.rate_mbyte_s",
        "rate_mbyte_s=max(link.rate_mbyte_s",
        OF_DRAW + "test_a_way_over_several_links_takes_the_time_of_all",
    ),
    Mutation(
        "collectives hang 200 times their worst",
        DRAW,
        "max(MIN_TIMEOUT_S, 10 * worst_s)",
        "max(MIN_TIMEOUT_S, 200 * worst_s)",
        OF_DRAW + "test_timeouts_grow_with_the_links",
    ),
    Mutation(
        "a profile's values without limits",
        "cluster/links/profiles.py",
        "not least <= low <= high <= most",
        "not low <= high",
        "tests/unit/test_profiles.py::test_what_is_wrong_is_named_with_the_file_and_the_key",
    ),
    Mutation(
        "a change told to one end",
        "cluster/links/changes.py",
        "for node in (change.src, change.dst)",
        "for node in (change.src,)",
        "tests/unit/test_changes.py::test_a_change_is_told_to_both_ends_and_to_nobody_else",
    ),
    Mutation(
        "heal does nothing",
        RUNNER,
        "self._lasting = [] if event.heal else [*self._lasting, (until, event)]",
        "self._lasting = [*self._lasting, (until, event)]",
        OF_RUNNER + "test_heal_takes_everything_back",
    ),
    Mutation(
        "what is for a while stays",
        RUNNER,
        "self._begins(event) + event.until_s",
        "math.inf",
        OF_RUNNER + "test_what_is_for_a_while_is_over_after_it",
    ),
    Mutation(
        "what is over stays until what begins then has begun",
        RUNNER,
        "self._undo_over(self._due(event))",
        "pass",
        OF_RUNNER + "test_what_is_over_ends_before_what_begins_then",
    ),
    Mutation(
        "a schedule is late in silence",
        RUNNER,
        "if late_s > LATE_S:",
        "if late_s > 1000 * LATE_S:",
        OF_RUNNER + "test_what_comes_late_is_told",
    ),
    Mutation(
        "a schedule's ends are foreseen after what begins then",
        "cluster/schedule/forecast.py",
        "(e.step or 0, e.until_s, False)",
        "(e.step or 0, e.until_s + 1e-3, False)",
        "tests/unit/test_schedule_links.py::test_a_schedule_that_leaves_room_for_its_jitter_is_none_of_those",
    ),
    Mutation(
        "a trace's jitter is held against all of its delay",
        "cluster/links/traces.py",
        'named.get("delay_ms", 0.0) * MOST_JITTER',
        'named.get("delay_ms", 0.0) * 10',
        "tests/unit/test_traces.py::test_a_trace_leaves_room_for_jitter_on_each_of_its_links",
    ),
    Mutation(
        "a partition cuts nothing",
        "cluster/schedule/events.py",
        'Change(link.src, link.dst, {"loss_pct": CUT_PCT})',
        'Change(link.src, link.dst, {"loss_pct": link.loss_pct})',
        "tests/unit/test_schedule.py::test_a_partition_cuts_the_links_between_its_sets_and_no_other",
    ),
)
