"""Prioritised replay of sequences: what actors did, kept and drawn for a learner.

Read in this order: sum_tree (draws in proportion to priorities), episodes (what is kept, and cut into sequences),
buffer (which are drawn, and what each counts for), targets (what a sequence says its values should have been).
"""
