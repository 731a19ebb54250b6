"""Where the bytes and seconds of a run went, from what ranks and kernels counted. Pure, but for reading files.

Reading order: `metrics` (the lines that ranks wrote), `collectives` (put together from all ranks), `routes` and
`bounds` (how fast each could have been), `tcp_timing` and `gloo_timing` (how fast as they are made), `attribution`
(where their time went), `what_if` (what would have helped), `wire_bytes` (reconciled with the kernel's counters),
`experience` and `broadcast` (a learner and its actors), `collective_stats`, `summary`. `open_collective` is what a rank
is in the middle of.
"""
