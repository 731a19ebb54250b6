"""The lowest layer: it knows nothing of links and containers, and everything else builds on it.

Reading order: `errors` (exceptions, exit codes), `spec` (a cluster's name, nodes, addresses), `paths` (our code, the
user's project), `console` (messages and progress), `stdout` (closed pipes, full disks).

Files: `files` (atomic writes, the end of a log), `json_file` (strict JSON), `yaml_file` (a user's YAML),
`line_splitter` (output into lines), `secrets` (masked in command lines).

`wording`: counts and lists of names in sentences. `processes`: programs with a timeout, children that end
with us, identity by start time, names of signals.
"""
