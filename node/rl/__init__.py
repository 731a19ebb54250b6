"""Reinforcement learning: the parts of PPO (node/tasks/ppo.py) and of IMPALA (node/tasks/impala.py).

Reading order: `presets` (the hyperparameters of each environment), `environments` (this rank's share of them), `policy`
(actor and critic), `rollout` (one round of collecting, advantages), `minibatches` (which samples a step takes),
`moments` (running means and variances, over all ranks), `loss` (PPO's), `regroup` (redistributes environments), `play`
(whole episodes). IMPALA: `unrolls` (actors), `vtrace` (values from an older policy's actions), `impala_learner` (the
learner).
"""
