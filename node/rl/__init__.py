"""Reinforcement learning: the parts of PPO (node/tasks/ppo.py).

Read in this order: presets (the hyperparameters of each environment), environments (this rank's share of them),
policy (actor and critic), rollout (one round of collecting, advantages), minibatches (which samples a step takes),
moments (running means and variances, over all ranks), loss; regroup (redistributes the environments of other ranks).
"""
