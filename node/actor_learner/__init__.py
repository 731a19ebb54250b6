"""Training by a learner and its actors (IMPALA, Ape-X, R2D2, DHC): rank 0 learns, the others act.

Read in this order: run (who does what), act (an actor's loop), learn (the learner's), staleness (how old is what is
learnt). Messages are node/transport's; what is learnt is a task's: node/tasks/actor_learner.py.
"""
