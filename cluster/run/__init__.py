"""One launch: ranks on nodes, over links that hold, and what they leave behind.

Reading order: `program` (what runs), `placement` (which rank where), `job` (the plan), `runner` (all of a run),
`staging` (files to the nodes; `checkpoints` of an earlier run, too), `ranks` (started together, ended together),
`rank_exit` and `rank_output`, `stall` and `stall_watcher`, `results` (fetched), `root_cause` (because of which rank a
run failed), `run_folder` (what stays).
"""
