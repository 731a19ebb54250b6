"""TCP and UDP ports of the data network that host and node both know."""

RENDEZVOUS_PORT = 29500
"""On the node of rank 0: MASTER_PORT of every rank, torchrun's own default. Nodes that are isolated reach it, too."""
LEARNER_PORT_OFFSET = 1
"""The learner listens so far above MASTER_PORT, as torch's own store may listen there (`--task mapf`)."""
PROBE_PORT = 29400
"""On every node while links are measured: TCP for bulk transfers, UDP for pings."""
FIRST_FLOOD_PORT = 29401
"""The first of the ports that a flood's senders use, one for each node that sends."""
