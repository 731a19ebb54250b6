"""A cluster whose containers are on other machines, its *hosts*: their Docker engines and nodes, reached over SSH.

Reading order: `hosts_file` (what a user writes) and `schema` (for editors), `node_placement` (which host has which
node), `record` (the hosts of an existing cluster), `connect` (chooses the engine of a cluster), `tunnel` (the one SSH
connection to a host), `socket_folder` (its local sockets), `host_engine` (the engine at its other end), `host_compose`
(creates containers there), `ship_image` (copies the image there).

For several hosts: `each` (one action on all hosts), `several` (their engines as one), `several_compose` (Compose on
each), `swarm_plan` (which hosts create, join and leave the swarm that gives them a network), `swarm` (carries the plan
out), `swarm_host` (the engine of one of them), `swarm_lock` (one change at a time), `clean_up` (the command for what
stays on a lost host).
"""
