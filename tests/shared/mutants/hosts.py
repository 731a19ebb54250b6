"""Mutations of clusters on several hosts: placement of nodes, leaving a swarm, clocks that hosts share."""

from mutants.mutation import Mutation

PLACEMENT, SWARM = "cluster/hosts/node_placement.py", "cluster/hosts/swarm_plan.py"
OF_PLACEMENT, OF_SWARM = "tests/unit/test_node_placement.py::", "tests/unit/test_swarm_plan.py::"
OF_SEVERAL, OF_CLOCKS = "tests/unit/test_several_hosts.py::", "tests/unit/test_clocks.py::"
OF_UNDERLAY = "tests/unit/test_underlay.py::"

HOSTS = (
    Mutation(
        "every host has the same share of nodes",
        PLACEMENT,
        "(counts[host.name] + 1) / host.cpus)",
        "counts[host.name] + 1)",
        OF_PLACEMENT + "test_shares_are_as_large_as_their_processors",
    ),
    Mutation(
        "a host takes more nodes than it says",
        PLACEMENT,
        "found |= dict.fromkeys(left[: host.nodes], host.name)",
        "found |= dict.fromkeys(left, host.name)",
        OF_PLACEMENT + "test_what_cannot_be_is_one_line",
    ),
    Mutation(
        "a swarm that is not ours is left, too",
        SWARM,
        "    if not manager.is_ours:\n        return []\n",
        "",
        OF_SWARM + "test_only_ours_is_left_and_by_those_that_nothing_else_needs",
    ),
    Mutation(
        "a swarm is left that another network needs",
        SWARM,
        "free = [member for member in inside if not set(member.overlays) - {network}]",
        "free = inside",
        OF_SWARM + "test_only_ours_is_left_and_by_those_that_nothing_else_needs",
    ),
    Mutation(
        "hosts join a swarm that is not ours",
        SWARM,
        "if outside and not manager.is_ours:",
        "if False:",
        OF_SWARM + "test_a_swarm_that_is_not_ours_to_change_is_named",
    ),
    Mutation(
        "a host that another cluster uses leaves its swarm",
        SWARM,
        "is_free = not set(member.overlays) - {network}",
        "is_free = True",
        OF_SWARM + "test_a_swarm_that_is_not_ours_to_change_is_named",
    ),
    Mutation(
        "a failing host is not named with its nodes",
        "cluster/hosts/several.py",
        "if not nodes or nodes in error.message:",
        "if True:",
        OF_SEVERAL + "test_one_that_fails_is_named_with_its_nodes",
    ),
    Mutation(
        "a node without Docker is replaced for its limits",
        "cluster/hosts/bare_compose.py",
        "keys=keys, cpu_period_us=0, cpu_quota_us=0, memory_bytes=0",
        "keys=keys, cpu_period_us=0, memory_bytes=0",
        "tests/unit/test_bare_hosts.py::test_what_a_running_node_can_change_is_no_reason_to_replace_it",
    ),
    Mutation(
        "a lost host keeps the others in the swarm",
        "cluster/hosts/swarm_engines.py",
        "[host.internal_ip for host in self.lost]",
        "[]",
        OF_SEVERAL + "test_what_stays_on_a_lost_host_is_said_with_the_command_that_removes_it",
    ),
    Mutation(
        "two clocks are taken for one",
        "cluster/links/expected.py",
        "return self.clocks.get(src) == self.clocks.get(dst)",
        "return True",
        OF_CLOCKS + "test_between_two_clocks_a_round_trip_is_judged_and_one_way_is_unknown",
    ),
    Mutation(
        "one clock is taken for two",
        "cluster/links/expected.py",
        "return self.clocks.get(src) == self.clocks.get(dst)",
        "return False",
        OF_CLOCKS + "test_by_one_clock_each_direction_is_judged",
    ),
    Mutation(
        "jitter by the squares of days",
        "cluster/contract/delays.py",
        "middle_ms = statistics.median(one_way_ms)",
        "middle_ms = 0.0",
        OF_CLOCKS + "test_jitter_is_found_however_far_two_clocks_are_apart",
    ),
    Mutation(
        "the data network is behind the default route",
        "node/wire/kernel_settings.py",
        're.compile(r"00[0-9A-F]{2}4D0A")',
        're.compile("00000000")',
        "tests/unit/test_kernel_settings.py::"
        "test_the_data_networks_device_is_not_that_of_the_default_route_where_these_differ",
    ),
    Mutation(
        "the delay of the network between hosts comes on top",
        "node/wire/layout.py",
        "self.plan.underlay_ms.get(self.plan.peer_of(link), 0.0)",
        "0.0",
        OF_UNDERLAY + "test_wires_add_the_rest_of_the_delay",
    ),
    Mutation(
        "the whole round trip between hosts is taken for one way",
        "cluster/links/underlay.py",
        "return path.round_trip_ms / 2 if path else 0.0",
        "return path.round_trip_ms if path else 0.0",
        OF_UNDERLAY + "test_plans_ask_for_the_same_links_and_say_what_is_beneath_them",
    ),
    Mutation(
        "a link is shorter than the network beneath it",
        "cluster/links/underlay.py",
        "link.delay_ms - underlay_ms >= least_ms - ROUNDING_MS",
        "True",
        OF_UNDERLAY + "test_a_link_is_no_shorter_than_the_network_beneath_it",
    ),
)
