"""The wire for kernels without sch_netem: packets wait in kernel queues until a daemon releases them.

Reading order: `backend` (sets up the wire), `daemon` (the process), `paths` (which queue is served by which path),
`delay_line` (when a packet may go: pure arithmetic), `python_path` (the reference) and `fast_path` (in C), `queues`,
`nfnetlink` and `recvmmsg` (the kernel's side), `injector` (duplicates).
"""
