"""Mutations of the contract: tolerances, verdicts, and what is attributed to a busy host."""

from mutants.mutation import Mutation

CHECKS, DOUBT = "cluster/contract/checks.py", "cluster/contract/doubt.py"
OF_CHECKS, OF_DOUBT = "tests/unit/test_contract.py::", "tests/unit/test_doubt.py::"
OF_QUEUES = "tests/unit/test_bursts.py::"

PROOF = (
    Mutation(
        "rate tolerance doubled",
        CHECKS,
        "SPEED_TOLERANCE_PCT = 3.0",
        "SPEED_TOLERANCE_PCT = 6.0",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "slow links clipped by the machine",
        "cluster/contract/floods.py",
        "HOST_LIMIT_MBYTE_S = 100.0",
        "HOST_LIMIT_MBYTE_S = 10.0",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "full queues taken for empty ones",
        "cluster/contract/measured.py",
        "EMPTY_PCT = 5.0",
        "EMPTY_PCT = 101.0",
        OF_CHECKS + "test_a_rate_beyond_the_machine_is_clipped_and_said_and_a_slow_link_is_not",
    ),
    Mutation(
        "what TCP carried says nothing about the rate",
        CHECKS,
        "max(rate.mbyte_s, min(by_tcp_mbyte_s, expected))",
        "rate.mbyte_s",
        OF_CHECKS
        + "test_a_link_that_carried_its_rate_by_tcp_is_not_called_slow_if_datagrams_were_fewer",
    ),
    Mutation(
        "what a busy host delayed counts as a rate",
        CHECKS,
        "if _too_fast(by_tcp_mbyte_s, expected):",
        "if False:",
        OF_CHECKS
        + "test_a_link_that_carried_its_rate_by_tcp_is_not_called_slow_if_datagrams_were_fewer",
    ),
    Mutation(
        "bursts slower than their link show its queue",
        CHECKS,
        "min(missing_ms, link.buffer_ms)",
        "missing_ms",
        OF_QUEUES + "test_a_burst_slower_than_its_link_says_nothing_about_the_queue",
    ),
    Mutation(
        "later passes do not go by what the machine has carried",
        "cluster/contract/measure.py",
        "share *= SMALLER * carried_share(doubtful)",
        "share *= SMALLER",
        "tests/unit/test_measure.py::test_a_later_pass_floods_at_once_no_more_than_the_machine_has_carried",
    ),
    Mutation(
        "delays of one way 4 % off hold",
        CHECKS,
        "DELAY_TOLERANCE_PCT = 2.0",
        "DELAY_TOLERANCE_PCT = 4.0",
        OF_CHECKS + "test_each_deviation_breaks_the_contract_by_name",
    ),
    Mutation(
        "queues a fifth too small hold",
        CHECKS,
        "BUFFER_TOLERANCE_PCT, BUFFER_TOLERANCE_MS = 5.0",
        "BUFFER_TOLERANCE_PCT, BUFFER_TOLERANCE_MS = 20.0",
        OF_CHECKS + "test_each_deviation_breaks_the_contract_by_name",
    ),
    Mutation(
        "losses that no wire has counted are nobody's",
        "cluster/contract/impairments.py",
        "return missing - drop_count.lost",
        "return 0",
        "tests/unit/test_impairments.py::test_losses_are_held_against_what_the_wire_itself_says_of_them",
    ),
    Mutation(
        "each look by itself",
        "cluster/contract/measure.py",
        "earlier |= {v.link: v.measured for v in doubtful if not v.undecided}",
        "earlier |= {}",
        "tests/unit/test_measure.py::test_of_what_chance_decides_all_looks_count_together",
    ),
    Mutation(
        "any jitter holds",
        CHECKS,
        "JITTER_TOLERANCE_PCT = 10.0",
        "JITTER_TOLERANCE_PCT = 1000.0",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "chance may do four times as much",
        CHECKS,
        "CERTAIN = 3.0",
        "CERTAIN = 12.0",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "round trips 1 ms off hold",
        CHECKS,
        "RTT_TOLERANCE_MS = 0.3",
        "RTT_TOLERANCE_MS = 1.3",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "round trips 2 % off hold",
        CHECKS,
        "RTT_TOLERANCE_PCT = 1.0",
        "RTT_TOLERANCE_PCT = 2.0",
        OF_CHECKS + "test_what_is_a_little_more_wrong_than_is_allowed_is_broken",
    ),
    Mutation(
        "looked at until it holds",
        "cluster/contract/measure.py",
        "LOOKS = 3",
        "LOOKS = 20",
        "tests/unit/test_measure.py::test_a_link_is_undecided_only_after_three_looks_at_a_busy_host",
    ),
    Mutation(
        "no second look",
        "cluster/contract/measure.py",
        "LOOKS = 3",
        "LOOKS = 1",
        "tests/unit/test_measure.py::test_a_link_is_undecided_only_after_three_looks_at_a_busy_host",
    ),
    Mutation(
        "a queue that nobody could fill is too small",
        "node/probe/burst.py",
        "left = self._held - after_s * self._datagrams_s",
        "left = self._held",
        OF_QUEUES
        + "test_a_queue_that_a_slow_sender_cannot_fill_is_measured_again_and_not_called_broken",
    ),
    Mutation(
        "queues of all links filled at once",
        "cluster/contract/bursts.py",
        "load = load_mbyte_s(link)",
        "load = 0.0",
        OF_QUEUES + "test_side_by_side_go_as_many_as_a_machine_carries",
    ),
    Mutation(
        "bursts twice as long hold",
        "cluster/contract/impairments.py",
        "BURST_TOLERANCE = 0.1",
        "BURST_TOLERANCE = 1.0",
        "tests/unit/test_impairments.py::test_each_flaw_is_judged_by_itself",
    ),
    Mutation(
        "any loss may be chance",
        "cluster/links/expected.py",
        "LOSS_CONFIDENCE = 0.999",
        "LOSS_CONFIDENCE = 0.9999999",
        OF_CHECKS + "test_loss_is_held_against_its_binomial_interval",
    ),
    Mutation(
        "goodput expected without headers",
        "cluster/links/expected.py",
        "TCP_IP_BYTES = 52",
        "TCP_IP_BYTES = 0",
        OF_CHECKS + "test_goodput_is_the_payloads_share_of_full_frames",
    ),
    Mutation(
        "an undecided contract holds",
        "cluster/contract/verdicts.py",
        "not any(v.failed for v in self.verdicts)",
        "not any(v.broken for v in self.verdicts)",
        OF_DOUBT + "test_an_undecided_contract_neither_holds_nor_is_broken_and_says_which_link",
    ),
    Mutation(
        "late timers excuse any round trip",
        DOUBT,
        "TENTH = 10.0",
        "TENTH = 1000.0",
        OF_DOUBT + "test_the_strain_of_a_link_is_that_of_the_nodes_on_its_way",
    ),
    Mutation(
        "a wrong delay excused by a busy host",
        DOUBT,
        "too_long_ms <= strain.reach_ms and early_ms <= tolerance_ms",
        "too_long_ms <= strain.reach_ms",
        OF_DOUBT + "test_what_a_busy_host_cannot_have_done_stays_broken",
    ),
    Mutation(
        "any loss excused by a busy host",
        DOUBT,
        "_lost_beyond(link, measured) <= strain.dropped",
        "_lost_beyond(link, measured)",
        OF_DOUBT + "test_losses_are_the_hosts_as_far_as_it_has_dropped_packets_and_no_further",
    ),
    Mutation(
        "a wire that is late is no busy host",
        "cluster/shaping/host_load.py",
        "LATE_PCT = 5.0",
        "LATE_PCT = 50.0",
        "tests/unit/test_host_load.py::test_each_kind_of_overload_is_said",
    ),
    Mutation(
        "a stall taken for jitter",
        "cluster/contract/delays.py",
        "OUTLIER = 4.5",
        "OUTLIER = 450.0",
        "tests/unit/test_delays.py::test_one_stall_of_the_host_is_not_taken_for_jitter",
    ),
)
