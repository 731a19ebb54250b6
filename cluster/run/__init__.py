"""A launch: runs ranks on nodes over links that hold, and collects what they leave.

Reading order: `program` (what runs), `placement` (which rank runs where), `job` (the plan), `runner` (the whole run),
`staging` (copies files to the nodes, also `checkpoints` of an earlier run), `ranks` (starts and ends all ranks
together), `rank_exit` and `rank_output`, `stall` and `stall_watcher`, `results` (fetches them), `root_cause` (the rank
that made a run fail), `run_folder` (what stays).
"""
