"""A sweep: many runs on one cluster, and their ranking. The verb, cluster/sweep.py, executes it.

Reading order: `sweep_file` and `flags` (the sweep as its user writes it), `schema` (for editors), `cells` (every
single run, and their order), `planned` (cells resolved into programs and links), `records` (finished cells, which are
not run again), `figures` (of one run), `predicted` (the same on links that it did not have), `ranking` (of all runs:
medians, intervals, pairs), `student` (the t distribution of intervals), `page` (the report).
"""
