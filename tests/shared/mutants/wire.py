"""Mutations of the parts of a link: delay, jitter, loss, rate, queue."""

from mutants.mutation import Mutation

DELAY_LINE, PYTHON_PATH = "node/wire/nfqueue/delay_line.py", "node/wire/nfqueue/python_path.py"
FAST, BACKEND = "node/wire/nfqueue/fast_path.c", "node/wire/nfqueue/backend.py"
EGRESS, NETEM = "node/wire/egress.py", "node/wire/netem.py"
OF_DELAY_LINE, OF_PYTHON_PATH = (
    "tests/unit/test_delay_line.py::",
    "tests/unit/test_python_path.py::",
)
OF_LINES, OF_TRACES = "tests/unit/test_wire_lines.py::", "tests/unit/test_wire_traces.py::"
SAME = "tests/node/test_fast_path.py::test_the_same_announcements_lead_to_the_same_verdicts_at_the_same_time"

WIRE = (
    Mutation(
        "0.2 ms more on each stamped packet",
        PYTHON_PATH,
        "microseconds / 1e6 + since_boot)",
        "microseconds / 1e6 + since_boot + 2e-4)",
        OF_PYTHON_PATH
        + "test_a_packet_is_due_by_its_stamp_and_without_one_by_when_it_was_heard_of",
    ),
    Mutation(
        "0.2 ms more on each held packet",
        DELAY_LINE,
        "arrived + self._only_delay_s",
        "arrived + self._only_delay_s + 2e-4",
        OF_DELAY_LINE + "test_a_packet_goes_exactly_after_the_delay",
    ),
    Mutation(
        "0.2 ms more on each packet, in C",
        FAST,
        "arrived + line->delay_s + draw.extra_s",
        "arrived + line->delay_s + draw.extra_s + 2e-4",
        SAME,
    ),
    Mutation(
        "no loss, in C",
        FAST,
        "(Held){due, packet, draw.verdict}",
        "(Held){due, packet, NF_ACCEPT}",
        SAME,
    ),
    Mutation(
        "late packets not counted, in C",
        FAST,
        "#define LATE_S 1e-3",
        "#define LATE_S 1e-2",
        SAME,
    ),
    Mutation(
        "packets late by up to 10 ms not counted",
        PYTHON_PATH,
        "LATE_S = 1e-3",
        "LATE_S = 1e-2",
        OF_PYTHON_PATH + "test_packets_that_go_late_are_counted_once_each",
    ),
    Mutation(
        "loss below 0.9 % not applied, nfqueue",
        BACKEND,
        "loss=0.0 if bursts else link.loss_pct / 100",
        "loss=0.0 if bursts or link.loss_pct < 0.9 else link.loss_pct / 100",
        OF_LINES + "test_the_daemon_loses_as_little_as_was_asked",
    ),
    Mutation(
        "loss below 0.5 % not applied, netem",
        NETEM,
        'return f"loss {link.loss_pct:.6f}%"',
        'return f"loss {link.loss_pct if link.loss_pct >= 0.5 else 0.0:.6f}%"',
        OF_LINES + "test_netem_loses_as_little_as_was_asked",
    ),
    Mutation(
        "netem changed in place by its delay alone",
        NETEM,
        "if _options(after, link) != _options(before, old[peer])",
        "if link.delay_ms != old[peer].delay_ms",
        OF_TRACES + "test_netem_is_told_whatever_it_is_that_changes",
    ),
    Mutation(
        "netem changed, and bursts ended, at each step of a rate",
        NETEM,
        "if _options(after, link) != _options(before, old[peer])",
        "if link != old[peer]",
        OF_TRACES + "test_netem_is_told_nothing_of_a_rate_so_that_bursts_of_losses_go_on",
    ),
    Mutation(
        "one seed for all changes, netem",
        NETEM,
        "seed_of(layout.plan, link) + layout.changes",
        "seed_of(layout.plan, link)",
        OF_LINES + "test_netem_in_place_draws_otherwise_on_each_link",
    ),
    Mutation(
        "a downlink's queue as long as that of a link in an outage",
        BACKEND,
        "links = map(layout.at_most, layout.plan.incoming().values())",
        "links = layout.plan.incoming().values()",
        OF_TRACES + "test_a_downlinks_queue_does_not_grow_while_a_trace_is_slow",
    ),
    Mutation(
        "an outage as slow as a packet of the plan",
        "node/wire/playback/traces.py",
        "if self._carried_bytes >= self._waited_bytes.get(link.ends, math.inf):",
        "if False:",
        OF_TRACES + "test_an_outage_lets_one_packet_of_the_trace_pass_however_fast_the_plan_is",
    ),
    Mutation(
        "a cutter that waiting super-packets cannot pass",
        EGRESS,
        'CUTTER_RATE = "1000tbit"',
        'CUTTER_RATE = "1tbit"',
        OF_LINES + "test_no_packet_that_waits_takes_a_nanosecond_of_the_cutter",
    ),
    Mutation(
        "unused draws thrown away at a change",
        "node/wire/nfqueue/fast_path.py",
        "        if unused:\n",
        "        if False:\n",
        "tests/node/test_fast_path.py::test_after_a_change_the_random_streams_continue_with_the_next_packet",
    ),
    Mutation(
        "half of the jitter",
        DELAY_LINE,
        "self._delays.gauss(0.0, spread_s)",
        "self._delays.gauss(0.0, spread_s / 2)",
        OF_DELAY_LINE + "test_jitter_has_the_spread_that_was_asked_for",
    ),
    Mutation(
        "uniform jitter as its half width",
        DELAY_LINE,
        "* math.sqrt(3) * spread_s",
        "* spread_s",
        OF_DELAY_LINE + "test_uniform_jitter_has_the_same_spread_and_an_end",
    ),
    Mutation(
        "more jitter moves the losses",
        DELAY_LINE,
        "self._losses.random() < behaviour.loss",
        "self._delays.random() < behaviour.loss",
        OF_DELAY_LINE + "test_more_jitter_does_not_move_the_losses",
    ),
    Mutation(
        "bursts end at once",
        DELAY_LINE,
        "(1 - ends if lost else begins)",
        "(begins if lost else begins)",
        OF_DELAY_LINE + "test_losses_come_in_bursts_of_the_length_that_was_asked_for",
    ),
    Mutation(
        "bursts lose twice as much",
        "protocol/gilbert.py",
        "end * loss / (1 - loss)",
        "2 * end * loss / (1 - loss)",
        OF_LINES + "test_bursts_lose_as_much_as_was_asked",
    ),
    Mutation(
        "rate 4 % too low",
        EGRESS,
        "round(link.bytes_per_s * 8)",
        "round(link.bytes_per_s * 7.68)",
        OF_LINES + "test_rates_are_whole_bits_from_the_slowest_to_the_fastest",
    ),
    Mutation(
        "ten times the burst",
        "node/wire/node_cap.py",
        "BURST_S = 1e-3",
        "BURST_S = 1e-2",
        OF_LINES + "test_egress_limits",
    ),
    Mutation(
        "half of the queue",
        EGRESS,
        "link.buffer_ms / 1e3",
        "link.buffer_ms / 2e3",
        OF_LINES + "test_egress_limits",
    ),
    Mutation(
        "super-packets of 2 ms",
        "node/wire/segmentation.py",
        "SUPER_PACKET_S = 2e-4",
        "SUPER_PACKET_S = 2e-3",
        OF_LINES + "test_super_packets_are_two_tenths_of_a_millisecond_of_their_link",
    ),
    Mutation(
        "flaws hit super-packets",
        "node/wire/segmentation.py",
        "MAX_CUT_MBYTE_S = 250.0",
        "MAX_CUT_MBYTE_S = 2.5",
        OF_LINES + "test_flaws_hit_single_packets_but_where_a_link_is_too_fast_for_them",
    ),
    Mutation(
        "a downlink without Ethernet headers",
        DELAY_LINE,
        "HEADER = 14",
        "HEADER = 0",
        OF_DELAY_LINE + "test_a_downlink_has_a_rate_and_a_queue_with_an_end",
    ),
    Mutation(
        "one seed for all links",
        "node/wire/layout.py",
        'f"{plan.seed} {link.src} {link.dst}"',
        'f"{plan.seed}"',
        OF_LINES + "test_every_link_has_a_seed_of_its_own_and_keeps_it",
    ),
)
