"""The links in force: applied to the nodes, read back, recorded, and applied again after a restart.

Reading order: `link_state` (sends plans, reads what is in force), `cluster_links` (refuses reports of unknown nodes),
`link_record` (what was requested, on the host), `underlay_record` (the network between hosts), `temporary_changes`
(notes, to undo them) and `restore` (after restarts and killed commands), `trace_player` (traces on all nodes),
`kernel_settings` (nodes grouped by them), `host_load` (whether the host, and not a link, was the limit).
"""
