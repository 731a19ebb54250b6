"""A cluster whose containers are on other machines, its *hosts*: their Docker engines and nodes, reached over SSH.

Reading order: `hosts_file` (what a user writes), `placement` (which host has which node) and `record` (both, of an
existing cluster), `tunnel` (the one SSH connection to a host, with local sockets in a `socket_folder`), `host_engine`
(the engine at its other end) and `host_compose` (creates containers there), `ship_image`, and `connect`, which chooses
the engine of a cluster.

For several hosts: `swarm_plan` (which hosts create, join and leave the swarm that gives them a network), `swarm_host`
(the engine of one of them), `swarm`, `swarm_lock` and `several_compose`, which carry the plan out, `several`, which
stands for all their engines, and `clean_up` (the command for what stays on a lost host).
"""
