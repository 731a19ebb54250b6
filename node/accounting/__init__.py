"""A rank's accounts.

Reading order: `metrics` (seconds, and lines of metrics), `ledger` (collectives), `gloo_traffic` (messages that gloo
makes of them), `tcp_state` (what TCP does for them), `link_counters` (the kernel's byte counters).
"""
