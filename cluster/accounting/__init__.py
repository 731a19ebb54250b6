"""Where the bytes and seconds of a run went, from what ranks and kernels counted. Pure, except for reading files.

Reading order: `summary` (combines most of what follows), then the input: `metrics` (lines that ranks wrote),
`metrics_table` (those as a table), `clocks` (how far clocks of hosts differed), `collectives` (joined from all ranks),
`open_collective` (the one that a rank is in now), `routes` (links between ranks).

Models of a collective's time: `bounds` (least time with gloo), `links_bound` (with any algorithm), `gloo_timing`
(gloo's messages), `tcp_timing` and `tcp_windows` (TCP's windows), `transfer_model` (all collectives of a run).

Where time went: `attribution` (of collectives, in parts), `rank_time` (of ranks between collectives), `gloo_path` (the
chain of events in a collective) and `critical_path` (in a run), `causes` (what slowed a run down).

What would have helped: `better_link` (one better link), `ring_order` (another order of nodes), `alternatives` (all
single changes), `other_links` (all links others), `run_replay` (how much shorter a run with quicker parts is).

Totals: `wire_bytes` (reconciled with the kernel's counters), `collective_stats` (bytes and seconds), `broadcast` (of
weights, against what links allow), `experience` (what learner and actors did).
"""
