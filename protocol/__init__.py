"""The documents that cross between host and node, each defined once, for both sides: docs/formats.md is made of it.

`cluster/` (the host) and `node/` (in every container) import this package and never each other. It imports the
standard library alone, and little of that: every command of a node starts it.

Read `reader` first (how a JSON value becomes one of these types, strictly), then `link` and `node_plan`, then what a
node answers: `link_report`. Processes that obey orders line by line are told and say what `probe` and `trace` have. Of
ranks: `rank`, `rank_variables`, `training`, `fit_order`; `places` and `ports` are what both sides call by name. What
ranks of `node.train` leave: `metrics` and `collectives`; what is seen of ranks from outside: `telemetry`.
"""
