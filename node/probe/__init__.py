"""Measures the links of this node: round trips, loss, jitter, goodput and rate, from one node to its peers.

Reading order: `__main__` (the process: orders and answers), `datagrams` (sockets and the echo), `pings` (round trips),
`goodput` (TCP), `flood` (the rate, by datagrams), `burst` (the queue), `timers` (how late timers are).
"""
