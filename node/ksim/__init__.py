"""The distributed PPO of the Ksim guide, under its names, over real links.

    from node.ksim import DistributedPPOTask, DistributedRLConfig

    task = DistributedPPOTask(DistributedRLConfig(num_envs=12, batch_size=6, num_batches=2))
    task.verify_distributed_setup()
    task.run_distributed_training()

The script runs alone, under torchrun, and under cluster.launch, where each node is a device in the guide's sense.
Reading order: `config` (settings and their constraints), `distributed_ppo` (the task, and what a derived one may
define), `rewards` (of a task's own) and `rewarded` (an environment that has them).
"""

from node.ksim.config import DistributedRLConfig
from node.ksim.distributed_ppo import DistributedPPOTask
from node.ksim.rewards import Reward, Transition

# One class has the settings of both: the guide's tasks derive theirs from this name.
DistributedPPOConfig = DistributedRLConfig

__all__ = [
    "DistributedPPOConfig",
    "DistributedPPOTask",
    "DistributedRLConfig",
    "Reward",
    "Transition",
]
