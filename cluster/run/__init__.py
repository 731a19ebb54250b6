"""A launch: runs ranks on nodes over links that hold, and collects what they leave.

What is asked: `request` (state of the cluster), `experiment` (the launch), `launch_words` (values of options),
`experiment_file` (experiment.yml) and `experiment_schema` (for editors), `program` (what runs), `command_words` (given
for it), `not_sent` (secrets in its folder).

Then read `job` (the plan of a launch), `runner` (the whole run), `verification` (of links, before it), `rank_placement`
(which rank runs where), `rank_order` (another order of nodes), `staging` (files to the nodes and back), `checkpoints`
(of an earlier run), `shared_folder` (--shared), `ranks` (starts and ends all together), `rank_output` (log and screen),
`rank_exit` (how a rank ended), `stall` (whether nothing moves), `stall_watcher` (asks silent ranks' nodes), `live_view`
(prepares the view), `results` (fetches what ranks left), `root_cause` (why a run failed).

What stays: `run_folder` (the folder of a run), `host_clocks` (how far clocks of hosts differ), `summary_document`
(types of summary.json), `versions` (of Python, torch, image). Later: `past_run` (reads the folder), `launch_again` (its
experiment), `trials` (single changes, tried).
"""
