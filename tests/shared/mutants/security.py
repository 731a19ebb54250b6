"""Mutations of security: host keys, file modes, unpacking of results, sshd's access rules, untrusted output."""

from mutants.mutation import Mutation

UNPACK, OF_UNPACK = "cluster/ssh/unpack.py", "tests/unit/test_unpack.py::"
OF_COMPOSE, OF_KEYS = "tests/unit/test_compose.py::", "tests/unit/test_ssh_config.py::"

SECURITY = (
    Mutation(
        "any host key will do",
        "cluster/ssh/connection.py",
        "paramiko.RejectPolicy()",
        "paramiko.AutoAddPolicy()",
        "tests/unit/test_fleet.py::test_a_node_with_another_host_key_is_refused",
    ),
    Mutation(
        "OpenSSH asks nobody about host keys",
        "cluster/ssh/keys.py",
        "StrictHostKeyChecking yes",
        "StrictHostKeyChecking no",
        OF_KEYS + "test_host_keys_are_pinned_for_openssh_too",
    ),
    Mutation(
        "keys that others can read",
        "cluster/base/files.py",
        "mode: int = 0o600",
        "mode: int = 0o644",
        OF_KEYS + "test_keys_are_their_owners_alone",
    ),
    Mutation(
        "a folder of keys that others can read",
        "cluster/ssh/keys.py",
        "spec.state_dir.mkdir(mode=0o700",
        "spec.state_dir.mkdir(mode=0o755",
        OF_KEYS + "test_keys_are_their_owners_alone",
    ),
    Mutation(
        "results may name .. in their way",
        UNPACK,
        'if name.startswith("/") or ".." in parts:',
        'if name.startswith("/"):',
        OF_UNPACK + "test_nothing_is_written_outside",
    ),
    Mutation(
        "results written over one another",
        UNPACK,
        "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        "os.O_CREAT | os.O_NOFOLLOW",
        OF_UNPACK + "test_a_name_that_is_there_twice_keeps_its_first_content",
    ),
    Mutation(
        "copies of links cost nothing of the limit",
        UNPACK,
        "stream.spend(about.st_size)",
        "pass",
        OF_UNPACK + "test_the_limit_is_of_all_together",
    ),
    Mutation(
        "a program's .env is sent",
        "cluster/run/not_sent.py",
        r"\.env(?:[-_.~].*)?|\.envrc|[._]netrc",
        "[._]netrc",
        "tests/unit/test_sent.py::test_keys_and_passwords_of_a_folder_are_not_sent",
    ),
    Mutation(
        "nodes keep Docker's capabilities",
        "cluster/engine/compose.py",
        '"cap_drop": ["ALL"]',
        '"cap_drop": []',
        OF_COMPOSE + "test_nodes_get_single_capabilities_and_nothing_else",
    ),
    Mutation(
        "sshd for all the world",
        "cluster/engine/compose.py",
        'f"{node.ssh_host}:{node.ssh_port}:22"',
        'f"{node.ssh_port}:22"',
        OF_COMPOSE + "test_ports_are_published_on_loopback_only",
    ),
    Mutation(
        "a node sees all keys",
        "cluster/engine/compose.py",
        "{spec.name}/{node.name}:{KEYS_FOLDER}:ro",
        "{spec.name}:{KEYS_FOLDER}:ro",
        OF_COMPOSE + "test_each_node_sees_its_own_keys_only_and_cannot_write_them",
    ),
    Mutation(
        "passwords let in",
        "node/sshd_config",
        "PasswordAuthentication no",
        "PasswordAuthentication yes",
        "tests/node/test_sshd.py::test_keys_let_in_and_nothing_else_does",
    ),
    Mutation(
        "ranks may move the terminal",
        "cluster/base/stdout.py",
        "found[1] or repr(found[0])[1:-1]",
        "found[0]",
        "tests/unit/test_stdout.py::test_a_terminal_is_shown_what_would_move_it",
    ),
    Mutation(
        "a summary that is no JSON",
        "cluster/base/json_file.py",
        "return document if math.isfinite(document) else None",
        "return document",
        "tests/unit/test_run_folder.py::test_what_json_has_no_number_for_is_null",
    ),
    Mutation(
        "any node may be named in a report of links",
        "cluster/shaping/cluster_links.py",
        "strange = next((name for name in names if name not in known), None)",
        "strange = None",
        "tests/unit/test_hostile_input.py::test_a_node_that_names_nodes_which_the_cluster_does_not_have_is_named",
    ),
    Mutation(
        "carriage returns alone never give a line",
        "cluster/base/line_splitter.py",
        " or skipped >= longest_bytes",
        "",
        "tests/unit/test_endless_answers.py::test_a_probe_that_says_carriage_returns_alone_is_not_understood",
    ),
    Mutation(
        "a log without a limit",
        "cluster/run/rank_output.py",
        "            if self._room < 0:\n                self._file.write",
        "            if False:\n                self._file.write",
        "tests/unit/test_line_splitter.py::test_a_log_stops_growing_at_its_limit_and_the_rank_goes_on",
    ),
    Mutation(
        "an object of any number of values",
        "protocol/reader.py",
        "if count > MOST_ITEMS:",
        "if False:",
        "tests/unit/test_reader.py::test_any_value_has_so_many_values_and_no_more",
    ),
)
