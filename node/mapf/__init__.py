"""Multi-agent path finding: agents on a grid, each with a goal of its own, who must not collide.

The world of DHC (Ma, Luo and Ma, 2021, arXiv 2106.11365), rule by rule. Read in this order: world (maps, starts and
goals), conflicts (who may move where), observation (what an agent sees), environment (episodes and rewards), network
(who talks to whom, and what they make of it), curriculum (harder maps for who has learnt the easier ones), optimum
(what a planner that sees everything does, to compare with).
"""
