"""The documents that cross between host and node, each defined once for both sides; source of docs/formats.md.

`cluster/` (the host) and `node/` (in every container) import this package and never each other. It imports only
the standard library, and little of that: every command of a node loads it.

Read `reader` first (how a JSON value becomes one of these types, strictly), then `link` and `node_plan`, then a node's
answer: `link_report`. `probe` and `trace` define the orders and answers of processes that are controlled line by line.
For ranks: `rank`, `rank_variables`, `training`, `fit_order`; `places` and `ports` are the paths and ports that both
sides name. What ranks of `node.train` write: `metrics` and `collectives`; what is seen of ranks from outside:
`telemetry`.
"""
