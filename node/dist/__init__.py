"""Ranks and their collectives.

Reading order: `rank_env` (torchrun's variables, and ours), `process_group` (joins and leaves it), `comm` (collectives
that are counted), `flat` (many tensors as one), `pending` (the future of an exchange), `codec` (quantised averages).
"""
