"""Where the bytes and seconds of a run went, from what ranks and kernels counted. Pure, except for reading files.

Reading order: `metrics` (the lines that ranks wrote), `collectives` (joined from all ranks), `routes` and `bounds` (how
fast each could have been), `tcp_timing` and `gloo_timing` (how fast they are as gloo and TCP do them), `attribution`
(where their time went), `better_link` (what would have helped) and `gains` (how much at most), `wire_bytes` (reconciled
with the kernel's counters), `experience` and `broadcast` (a learner and its actors), `collective_stats`, `summary`.
`open_collective` is the collective that a rank is in now.
"""
