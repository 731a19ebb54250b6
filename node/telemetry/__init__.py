"""What this node is doing while a run goes on, one JSON line a second: ranks, links, the clock.

    python3 -S -m node.telemetry < order        # docs/formats.md

For observers, not for the accounts: a look may be late, and nothing waits for it. Reading order: `metrics_tail` (what
ranks say of themselves), `rank_looks` (what is seen of them from outside), `tc_dump` (asks the kernel for counters),
`link_looks` (those of outgoing links), `__main__`, which looks once a second.
"""
