"""What runs in every node, and the training loop, which also runs on a laptop.

Reading order: `rank` (supervises a rank) with `supervisor` (its parts), `train` (the training loop) with `training`
(its parts), `strategies` (how ranks synchronise), `tasks` (models and data), `dist` (process group, collectives),
`accounting` (their cost), `base` (options, user code, priorities).

Reinforcement learning: `rl` (PPO and IMPALA), `replay` (prioritised sequences), `mapf` (path finding), `actor_learner`
(loops of learner and actors), `transport` (their messages). APIs of others: `exogym` (EXO Gym), `ksim` (Ksim's guide).

Links and node: `wire` (shapes the links), `probe` (measures them), `telemetry` (a look every second), `check` (for
cluster.doctor), `vxlan` (the data device without Docker's network), `pod` (a node in Kubernetes), `bare` (nodes on a
host without Docker).
"""
