"""A cluster whose containers are on another machine, the *host*: its Docker engine and its nodes, reached over SSH.

Reading order: `hosts_file` (what a user writes) and `record` (what a cluster that is up has), `tunnel` (one SSH
connection a host, through which everything goes, by sockets in a `socket_folder`), `host_engine` (an engine at the end
of one) and `host_compose` (containers made there), `ship_image`, `connect`, which chooses between this machine and a
host.
"""
