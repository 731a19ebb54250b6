"""Links that change as traces say, many times a second.

Reading order: `traces` (values at each moment), `player` (plays them), `lock` (marks that a player runs).
"""
