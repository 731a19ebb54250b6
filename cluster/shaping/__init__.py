"""The links in force: applied to the nodes, read back, recorded, and applied again after a restart.

Reading order: `link_state` (send plans, read what is in force), `link_record` (what was requested, on the host) and
`underlay_record` (the network between hosts), `temporary_changes` and `restore` (clean up after restarts and killed
commands), `trace_player`, `kernel_settings`, `host_load` (whether the host, and not a link, was the limit).
"""
