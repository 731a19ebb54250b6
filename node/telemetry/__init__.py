"""What this node is doing while a run goes on, one JSON line a second: ranks, links, the clock.

    python3 -S -m node.telemetry < order        # docs/formats.md

For observers, not for the accounts: a look may be late, and nothing waits for it. Reading order: `metrics_tail` (what
ranks say of themselves), `rank_looks` (what is seen of them from outside), `tc_dump` and `link_looks` (the kernel's
counters), `__main__`, which looks once a second.
"""
