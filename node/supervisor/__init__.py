"""The parts of `node.rank`, which supervises a rank.

Reading order: `privileges` (those that a rank must not have), `descendants` (killed at the end), `error_file` (why it
failed), `oom` (kills for lack of memory); for stalls: `rank_states` (ranks seen from outside), `stacks` (of each
thread).
"""
