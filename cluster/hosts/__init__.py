"""A cluster whose containers are on other machines, its *hosts*: their Docker engines and nodes, reached over SSH.

Reading order: `hosts_file` (what a user writes), `placement` (which host has which node) and `record` (what a cluster
that is up has), `tunnel` (one SSH connection a host, through which everything goes, by sockets in a `socket_folder`),
`host_engine` (an engine at the end of one) and `host_compose` (containers made there), `ship_image`, `connect`, which
chooses where a cluster is.

Of several hosts: `swarm_plan` (who makes, joins and leaves a swarm, for its network), `swarm_host` (the engine of one
of them), `swarm` and `several_compose`, which act, and `several`, which stands for all their engines as one.
"""
