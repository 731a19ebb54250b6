"""PPO on cart-pole, with the names of Ksim's guide, on any number of ranks.

    python -m cluster.launch --profile wan -- examples/cart_pole.py     # three nodes, over links like the internet's
    python -m cluster.launch --nodes 2 -- examples/cart_pole.py num_envs=32 batch_size=16
    python examples/cart_pole.py                                        # alone, where torch and gymnasium are

The same by flags: python -m cluster.launch --profile wan --task ppo --strategy fedavg --set H=20
"""

from node.ksim import DistributedPPOTask, DistributedRLConfig

DistributedPPOTask.launch(DistributedRLConfig(grad_sync_period=20))
