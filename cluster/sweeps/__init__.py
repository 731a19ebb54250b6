"""A sweep: many runs on one cluster, and which of them got there first.

Reading order: `sweep_file` and `flags` (what is run, as its user writes it), `cells` (every single run, and in which
order), `planned` (resolved), `records` (what is done is not run again), `figures` (of one run), `ranking` (of all:
medians, intervals, pairs), `page` (the report of the whole), `schema`. The verb, cluster/sweep.py, acts.
"""
