"""The links in force: laid on the nodes, read back, put on record, laid again after a restart.

Reading order: `link_state` (send plans, read what is in force), `link_record` (what was asked, on the host),
`temporary_changes` and `restore` (what restarts and killed commands left), `trace_player`, `kernel_settings`,
`host_load` (whether the host, and not a link, was the limit).
"""
