"""What this node is doing while a run goes on, a JSON line a second: ranks, links, the clock.

    python3 -S -m node.telemetry < order        # docs/formats.md

For whoever looks on, not for the accounts: a look may be late, and nothing waits for it. Reading order: `metrics_tail`
(what ranks say of themselves), `rank_looks` (what is seen of them from outside), `tc_dump` and `link_looks` (what the
kernel has counted), `__main__`, which looks once a second.
"""
