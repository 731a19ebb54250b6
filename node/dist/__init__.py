"""Ranks and their collectives. Reading order: `rank_env` (torchrun's variables), `process_group`, `comm`."""
