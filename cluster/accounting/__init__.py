"""Where the bytes and seconds of a run went, from what ranks and kernels counted. Pure, but for reading files.

Reading order: `metrics` (the lines that ranks wrote), `collectives` (put together from all ranks), `bounds` (how fast
each could have been), `wire_bytes` (reconciled with the kernel's counters), `collective_stats`, `summary`.
"""
