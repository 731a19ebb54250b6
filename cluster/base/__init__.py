"""The lowest layer: it knows nothing of links and containers, and everything else builds on it.

Reading order: `errors` (exceptions, exit codes), `spec` (a cluster's name, nodes, addresses), `paths` (our code, the
user's project), `console` (messages and progress), `stdout` (closed pipes, full disks).

Files: `files` (atomic writes), `json_file` (strict JSON), `yaml_file` (a user's YAML), `log_tail` (the end of a log),
`line_splitter` (output into lines), `secrets` (masked in command lines).

Processes: `subprocesses` (programs with a timeout), `processes` (identified by start time), `parent_death` (children
end with us), `signal_names` (names of signals).
"""
