"""Mutations of the accounts of bytes and seconds."""

from mutants.mutation import Mutation

BYTES, OF_BYTES = "cluster/accounting/wire_bytes.py", "tests/unit/test_collective_stats.py::"
BOUNDS, OF_BOUNDS = "cluster/accounting/bounds.py", "tests/unit/test_bounds.py::"

ACCOUNTING = (
    Mutation(
        "bytes x 0.96",
        "cluster/shaping/link_state.py",
        "counter.sent_bytes - was.get((src, dst), 0)",
        "round(0.96 * (counter.sent_bytes - was.get((src, dst), 0)))",
        "tests/unit/test_link_state.py::test_bytes_of_a_run_are_the_difference_of_two_readings",
    ),
    Mutation(
        "bytes x 0.96, on the node",
        "node/wire/egress.py",
        'sent_bytes=of_class["bytes"]',
        'sent_bytes=int(0.96 * of_class["bytes"])',
        "tests/unit/test_wire_lines.py::test_counters_are_those_of_the_links_by_peer",
    ),
    Mutation(
        "frames without TCP's timestamps",
        BYTES,
        "FRAME_OVERHEAD_BYTES = 66",
        "FRAME_OVERHEAD_BYTES = 54",
        OF_BYTES + "test_an_all_reduce_on_the_wire_is_what_was_measured",
    ),
    Mutation(
        "messages without gloo's head",
        BYTES,
        "GLOO_BYTES = 48",
        "GLOO_BYTES = 0",
        OF_BYTES + "test_a_message_on_the_wire_is_what_was_measured",
    ),
    Mutation(
        "an acknowledgement a frame",
        BYTES,
        "SEGMENTS_AN_ACK = 2",
        "SEGMENTS_AN_ACK = 1",
        OF_BYTES + "test_a_message_on_the_wire_is_what_was_measured",
    ),
    Mutation(
        "links 7 % off are right",
        BYTES,
        "TOLERANCE = 0.05",
        "TOLERANCE = 0.07",
        OF_BYTES + "test_links_that_carried_something_else_are_named",
    ),
    Mutation(
        "a bound without delays",
        BOUNDS,
        "append(free[rank] + route.delay_s)",
        "append(free[rank])",
        OF_BOUNDS + "test_on_long_links_only_the_hops_count",
    ),
    Mutation(
        "a bound without shared uplinks",
        BOUNDS,
        "[load.end] if load else []",
        "[]",
        OF_BOUNDS + "test_an_uplink_is_shared",
    ),
    Mutation(
        "one message of gloo in the air",
        "cluster/links/expected.py",
        "IN_THE_AIR = 2",
        "IN_THE_AIR = 1",
        "tests/unit/test_contract.py::test_what_gloos_all_reduce_gets_of_a_link_is_what_was_measured",
    ),
    Mutation(
        "TCP begins with one segment",
        "cluster/accounting/tcp_timing.py",
        "FIRST_WINDOW_BYTES = 10 * MSS_BYTES",
        "FIRST_WINDOW_BYTES = MSS_BYTES",
        "tests/unit/test_tcp_timing.py::test_after_a_pause_tcp_begins_slowly",
    ),
    Mutation(
        "a run gains all that a collective is quicker",
        "cluster/accounting/run_replay.py",
        "part.ended - max(waits_at, data_at)",
        "part.ended - data_at",
        "tests/unit/test_better_link.py::test_no_change_saves_more_than_ranks_waited",
    ),
    Mutation(
        "a rank that comes later than others is not waited for",
        "cluster/accounting/run_replay.py",
        "max(entered[part] for part in parts)",
        "min(entered[part] for part in parts)",
        "tests/unit/test_run_replay.py::test_waiting_for_a_late_rank_is_none_of_the_transfer",
    ),
    Mutation(
        "a window has room as soon as bytes have left",
        "cluster/accounting/tcp_timing.py",
        "append((self._free_at + self._rtt_s, sent))",
        "append((self._free_at, sent))",
        "tests/unit/test_tcp_timing.py::test_messages_leave_as_in_a_simulation_of_every_packet",
    ),
    Mutation(
        "each pair of a sweep has an interval of 95 %",
        "cluster/sweeps/ranking.py",
        "_half(own, TAILS / comparisons)",
        "_half(own, TAILS)",
        "tests/unit/test_sweep.py::test_of_equal_variants_one_is_called_slower_in_at_most_one_of_twenty_sweeps",
    ),
    Mutation(
        "pairs over one draw of links, or of one seed, count as independent",
        "cluster/sweeps/ranking.py",
        "[_groups(logs, place) for place in varied]",
        "[[[value] for value in logs.values()]]",
        "tests/unit/test_sweep.py::test_pairs_that_share_links_or_a_seed_are_not_independent",
    ),
    Mutation(
        "a run is ranked by its wall time beside others' seconds of training",
        "cluster/sweeps/ranking.py",
        "replace(one.figures, wall_s=None)",
        "replace(one.figures)",
        "tests/unit/test_sweep.py::test_a_run_whose_accounts_are_lost_is_not_ranked_by_its_wall_time",
    ),
    Mutation(
        "a rank is who its lines say",
        "cluster/accounting/metrics_table.py",
        '"rank": ranks.index(node),',
        '"rank": own[0].rank,',
        "tests/unit/test_hostile_input.py::test_a_rank_is_known_by_its_file_and_not_by_what_its_lines_say",
    ),
    Mutation(
        "seconds booked to the bucket that comes",
        "node/accounting/metrics.py",
        "self._seconds[self._running] += now - self._since",
        "self._seconds[bucket] += now - self._since",
        "tests/unit/test_clock.py::test_seconds_belong_to_what_ran",
    ),
    Mutation(
        "payload of an all-reduce x 0.96",
        "node/accounting/gloo_traffic.py",
        "round(2 * (world_size - 1)",
        "round(1.92 * (world_size - 1)",
        "tests/node/test_cards.py::test_the_wire_carries_what_the_card_says[ddp-2]",
    ),
    Mutation(
        "payload of an all-gather sent once",
        "node/accounting/gloo_traffic.py",
        "others * size}",
        "size}",
        "tests/node/test_cards.py::test_the_wire_carries_what_the_card_says[demo-3]",
    ),
)
