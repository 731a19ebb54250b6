"""Measures the links of this node: round trips, loss, jitter, goodput and rate, from one node to its peers."""
