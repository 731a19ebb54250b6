"""TCP and UDP ports of the data network that host and node both know."""

RENDEZVOUS_PORT = 29500
"""On the node of rank 0: MASTER_PORT of every rank, torchrun's own default. Isolated nodes reach it, too."""
LEARNER_PORT_OFFSET = 1
"""A learner (`--task mapf`) listens at MASTER_PORT plus this, because torch's own store may listen at MASTER_PORT."""
PROBE_PORT = 29400
"""On every node while links are measured: TCP for bulk transfers, UDP for pings."""
FIRST_FLOOD_PORT = 29401
"""The first of the ports that floods are sent to, one for each sending node."""
