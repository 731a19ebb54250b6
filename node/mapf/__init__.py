"""Multi-agent path finding: agents on a grid, each with a goal of its own, which must not collide.

The world of DHC (Ma, Luo and Ma, 2021, arXiv 2106.11365), rule by rule. Reading order: `world` (maps, starts and
goals), `conflicts` (who may move where), `observation` (what an agent sees), `environment` (episodes and rewards),
`network` (perception, memory, communication and values), `curriculum` (harder maps once easier ones are mastered),
`settings` (of learning), `acting` (several environments at once), `learning` (the loss of a batch), `learner` (replay
and updates), `play` (best actions, to the end), `optimum` (plans of a planner that sees everything, for comparison).
"""
