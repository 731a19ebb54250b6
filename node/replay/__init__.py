"""Prioritised replay of sequences: the actors' experience, kept and drawn for a learner.

Reading order: `sum_tree` (draws in proportion to priorities), `episodes` (what is kept and cut into sequences),
`buffer` (which sequences are drawn, and with which weights), `targets` (the targets of a sequence's values).
"""
