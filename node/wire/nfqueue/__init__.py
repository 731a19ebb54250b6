"""The wire for kernels without sch_netem: packets wait in kernel queues until a daemon lets them go.

Reading order: `backend` (what the wire lays), `daemon` (the process), `delayers` (which queue is served by whom),
`delay_line` (when a packet may go: plain arithmetic), `delayer` (in Python) and `fast_path` (in C), `queues`,
`nfnetlink` and `recvmmsg` (the kernel's side), `injector` (second copies).
"""
