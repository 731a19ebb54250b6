"""The documents that cross between host and node, each defined once for both sides; source of docs/formats.md.

cluster/ (the host) and node/ (in every container) import this package and never each other. It imports only the
standard library, and little of that: every command of a node loads it.

Reading order: `reader` (how a JSON value becomes one of these types, strictly), `values` (types that documents share),
`link` (one directed link), `node_plan` (the links of a node), `link_report` (the node's answer), `gilbert` (the model
of bursty losses).

Processes that are controlled line by line: `lines` (orders and answers), `probe` (measures links), `trace` (changes
links). Ranks: `rank` (start and end), `rank_variables` (environment), `training` (a resolved configuration),
`fit_order` (of Trainer.fit), `checkpoint_name` (names of checkpoints), `metrics` and `collectives` (what ranks of
`node.train` write), `telemetry` (ranks seen from outside).

`places`, `ports` and `labels` are the paths, ports and labels that both sides name. `node_check` is the answer to
cluster.doctor; `vxlan_plan` (the data device), `pod_order` (a pod) and `bare` (nodes on a host without an engine) are
for nodes without Docker's network.
"""
