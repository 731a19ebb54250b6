"""PPO on cart-pole, with the names of Ksim's guide, on any number of ranks.

    python -m cluster.launch --profile wan -- examples/cart_pole.py     # three nodes, over links like the internet's
    python examples/cart_pole.py                                        # alone, where torch and gymnasium are

The same by flags: python -m cluster.launch --profile wan --task ppo --strategy fedavg --set H=20
"""

from node.ksim import DistributedPPOTask, DistributedRLConfig

config = DistributedRLConfig(num_envs=12, batch_size=12, grad_sync_period=20)
task = DistributedPPOTask(config)
task.verify_distributed_setup()
task.run_distributed_training()
