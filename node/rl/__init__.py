"""Reinforcement learning: what PPO (node/tasks/ppo.py) is made of.

Read in this order: presets (what each environment is trained with), environments (this rank's part of them), policy
(actor and critic), rollout (one round of collecting, advantages), minibatches (which samples a step takes), moments
(running means and variances, of all ranks together), loss; regroup (other ranks' environments, dealt out anew).
"""
