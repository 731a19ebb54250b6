"""Training by a learner and its actors (IMPALA, Ape-X, R2D2, DHC): rank 0 learns, the others act.

Reading order: `run` (which rank does what), `act` (an actor's loop), `learn` (the learner's loop), `silence` (of
actors), `staleness` (age of experience). `node.transport` carries the messages; a task defines what is learnt:
`node.tasks.actor_learner`.
"""
