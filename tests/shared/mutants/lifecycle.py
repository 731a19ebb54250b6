"""Mutations of the creation, repair and removal of clusters."""

from mutants.mutation import Mutation

OF_REMOVAL, OF_RESTORE = "tests/unit/test_removal.py::", "tests/unit/test_restore.py::"

LIFECYCLE = (
    Mutation(
        "the image is never stale",
        "cluster/engine/image.py",
        "digest.update(path.read_bytes())",
        "pass",
        "tests/unit/test_image.py::test_another_line_of_the_nodes_code_is_another_image",
    ),
    Mutation(
        "one quiet look is enough",
        "cluster/lifecycle/removal.py",
        "LOOKS, QUIET_LOOKS, LOOK_INTERVAL_S = 50, 4, 0.25",
        "LOOKS, QUIET_LOOKS, LOOK_INTERVAL_S = 50, 1, 0.25",
        OF_REMOVAL + "test_what_comes_late_of_a_half_made_cluster_goes_too",
    ),
    Mutation(
        "another checkout's cluster is ours",
        "cluster/engine/ownership.py",
        'container.working_dir in ("", str(PROJECT_DIR))',
        "True",
        OF_REMOVAL + "test_a_cluster_of_another_checkout_stays",
    ),
    Mutation(
        "down asks nobody whose it is",
        "cluster/lifecycle/removal.py",
        "if not force:",
        "if False:",
        OF_REMOVAL + "test_a_cluster_of_another_checkout_stays",
    ),
    Mutation(
        "changes that were given up go on for ever",
        "cluster/shaping/temporary_changes.py",
        'said["started"] != "" and ',
        "",
        OF_RESTORE
        + "test_a_change_that_could_not_be_undone_does_not_go_on_after_its_process_has_ended",
    ),
    Mutation(
        "a temporary change keeps lost links lost",
        "cluster/shaping/restore.py",
        "return [node for node in wrong if node not in link_state.plans]",
        "return []",
        OF_RESTORE + "test_a_temporary_change_keeps_no_node_from_getting_lost_links_back",
    ),
    Mutation(
        "limits of a killed command stay",
        "cluster/shaping/restore.py",
        "if not one.alive]",
        "if one.alive]",
        OF_RESTORE + "test_what_a_killed_command_took_of_processors_is_given_back",
    ),
    Mutation(
        "links that are not as recorded stay",
        "cluster/shaping/restore.py",
        "if link_state.plans.get(node) != recorded.get(node)]",
        "if node not in link_state.plans]",
        OF_RESTORE + "test_nodes_whose_links_are_not_the_recorded_ones_are_known",
    ),
    Mutation(
        "up takes over what another checkout has left",
        "cluster/lifecycle/create.py",
        "        check_may_create(engine, spec.name)\n",
        "        pass\n",
        "tests/unit/test_create.py::test_what_another_checkout_has_left_under_this_name_stays",
    ),
    Mutation(
        "an interrupted restore counts as complete",
        "cluster/schedule/runner.py",
        "            self.is_restored = False\n",
        "            pass\n",
        "tests/unit/test_schedule_runner.py::test_what_an_interrupt_keeps_from_being_restored_is_left_to_the_next_command",
    ),
    Mutation(
        "a killed command's links beside a living change are taken for asked for",
        "cluster/shaping/restore.py",
        "    _refuse_mixed(spec, link_state, recorded)\n",
        "    pass\n",
        "tests/unit/test_restore.py::test_what_a_killed_command_changed_is_not_taken_for_a_living_ones_wish",
    ),
)
