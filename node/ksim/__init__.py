"""The distributed PPO of the Ksim guide, under its names, over real links. All code is in `distributed_ppo`.

    from node.ksim import DistributedPPOTask, DistributedRLConfig

    task = DistributedPPOTask(DistributedRLConfig(num_envs=12, batch_size=6, num_batches=2))
    task.verify_distributed_setup()
    task.run_distributed_training()

The script runs alone, under torchrun, and under cluster.launch, where each node is a device in the guide's sense.
"""

from node.ksim.distributed_ppo import DistributedPPOTask, DistributedRLConfig

__all__ = ["DistributedPPOTask", "DistributedRLConfig"]
