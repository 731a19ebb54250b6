"""A cluster whose containers are on other machines, its *hosts*: their Docker engines and nodes, reached over SSH.

Reading order: `hosts_file` (what a user writes) and `schema` (for editors), `node_placement` (which host has which
node), `record` (the hosts of an existing cluster), `connect` (chooses the engine of a cluster), `tunnel` (the one SSH
connection to a host), `socket_folder` (its local sockets), `remote_engine` (what all engines at its other end have in
common), `ship_image` (copies the image there). Hosts with Docker: `host_engine`, `host_compose` (creates containers
there). Hosts without: `bare_host` (the program that runs nodes there), `bare_compose` (creates nodes there),
`bare_image` (how the image, and with it the program, gets there), `vxlan` (the tunnels between nodes, also of pods).

For several hosts: `each` (one action on all hosts), `several` (their engines as one), `several_compose` (Compose on
each), `clean_up` (the command for what stays on a lost host). With Docker, Swarm gives them a network: `swarm_plan`
(which hosts create, join and leave the swarm), `swarm` (carries the plan out), `swarm_host` (the engine of one of
them), `swarm_engines` and `swarm_compose` (all of them), `swarm_lock` (one change at a time).
"""
