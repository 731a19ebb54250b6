"""Mutations of a launch: where ranks run, their environment, how they end and why."""

from mutants.mutation import Mutation

PLACES, OF_PLACES = "cluster/run/rank_placement.py", "tests/unit/test_rank_placement.py::"
GUILT, OF_CAUSE = "protocol/rank.py", "tests/unit/test_root_cause.py::"

LAUNCHING = (
    Mutation(
        "a rank's number as that on its node",
        PLACES,
        '"LOCAL_RANK": str(place.local_rank)',
        '"LOCAL_RANK": str(place.rank)',
        OF_PLACES + "test_several_ranks_a_node_are_numbered_as_under_torchrun",
    ),
    Mutation(
        "ranks meet where the last one is",
        PLACES,
        '"MASTER_ADDR": places[0].node',
        '"MASTER_ADDR": places[-1].node',
        OF_PLACES + "test_several_ranks_a_node_are_numbered_as_under_torchrun",
    ),
    Mutation(
        "--rank-order does nothing",
        "cluster/run/rank_order.py",
        "return RankOrder(parse_rank_order(asked, nodes))",
        "return RankOrder(tuple(nodes))",
        "tests/unit/test_ring_order.py::test_an_order_by_name_decides_which_node_has_which_rank",
    ),
    Mutation(
        "an sshd that says nothing is waited for until the deadline",
        "cluster/ssh/connection.py",
        "> deadline or silent_s >= no_greeting_s",
        "> deadline",
        "tests/unit/test_fleet.py::"
        "test_an_sshd_that_accepts_connections_without_a_greeting_is_not_waited_for_until_the_deadline",
    ),
    Mutation(
        "ranks have two minutes to end",
        "protocol/rank.py",
        "GRACE_S = 10.0",
        "GRACE_S = 120.0",
        "tests/unit/test_rank.py::test_a_rank_that_is_to_stop_has_ten_seconds",
    ),
    Mutation(
        "a rank failed when it was gone",
        "node/rank.py",
        "min(error.time, ended)",
        "ended",
        "tests/unit/test_rank.py::test_a_rank_has_failed_when_it_said_so",
    ),
    Mutation(
        "a signal is exit code 1",
        "node/rank.py",
        "else 128 - report.exit_code",
        "else 1",
        "tests/unit/test_rank.py::test_the_supervisor_ends_as_its_rank_did",
    ),
    Mutation(
        "the last to fail is the root cause",
        GUILT,
        "return is_bystander, time",
        "return is_bystander, -time",
        OF_CAUSE + "test_of_bystanders_alone_the_first_is_named_and_none_that_we_stopped",
    ),
    Mutation(
        "who saw another go is the root cause",
        GUILT,
        "return is_bystander, time",
        "return False, time",
        OF_CAUSE + "test_who_saw_another_go_is_never_the_root_cause",
    ),
    Mutation(
        "whose store is gone failed by itself",
        "node/supervisor/error_file.py",
        "|failed to recv, got 0 bytes|",
        "|",
        OF_CAUSE + "test_words_of_another_ranks_end_are_known",
    ),
    Mutation(
        "whoever was told to end was done too early",
        "cluster/run/root_cause.py",
        "end.exit_code == 0 and not end.was_stopped",
        "end.exit_code == 0",
        OF_CAUSE + "test_whoever_was_told_to_end_was_not_done_by_then",
    ),
    Mutation(
        "one restart too many",
        "cluster/run/ranks.py",
        "end.restarts >= self._max_restarts",
        "end.restarts > self._max_restarts",
        "tests/unit/test_essential_ranks.py::test_after_its_last_restart_the_run_goes_on_without_it",
    ),
    Mutation(
        "half of a processor is no movement",
        "cluster/run/stall.py",
        "IDLE_SHARE, IDLE_BYTES = 0.02, 2048",
        "IDLE_SHARE, IDLE_BYTES = 0.5, 2048",
        "tests/unit/test_stall.py::test_what_counts_as_movement",
    ),
    Mutation(
        "what TCP sends again is movement",
        "node/supervisor/rank_states.py",
        "(bytes_acked|bytes_received)",
        "(bytes_sent|bytes_received)",
        "tests/unit/test_stall.py::"
        "test_connections_are_those_of_the_ranks_own_processes_and_what_is_sent_again_does_not_count",
    ),
    Mutation(
        "ranks wait for others only as long as a stall lasts",
        "cluster/run/job.py",
        "max(LEAST_TIMEOUT_S, self.silence_s, stalled_s)",
        "max(self.silence_s, stalled_s)",
        "tests/unit/test_stall.py::test_a_rank_waits_for_others_that_compute_longer_than_a_stall_lasts",
    ),
    Mutation(
        "a silent node is never lost",
        "cluster/ssh/liveness.py",
        "MOST_SILENT_S = 15.0",
        "MOST_SILENT_S = 1500.0",
        "tests/unit/test_liveness.py::test_a_node_that_falls_silent_is_lost_after_fifteen_seconds",
    ),
    Mutation(
        "a mistake of the user's is exit code 1",
        "cluster/base/errors.py",
        "EXIT_USAGE = 2",
        "EXIT_USAGE = 1",
        "tests/unit/test_cli.py::test_an_option_without_its_value_is_refused",
    ),
)
