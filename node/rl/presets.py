"""Environments by name, and what each is trained with unless it is told otherwise. Nothing here imports gymnasium.

The numbers are those of RL Baselines3 Zoo (https://github.com/DLR-RM/rl-baselines3-zoo, hyperparams/ppo.yml), but for
`num_envs`, which 2, 3, 4 and 6 ranks can share, and so `num_steps`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.base.options import Value


@dataclass(frozen=True)
class Preset:
    """What an environment is trained with.

    Attributes:
        options: of the task, by name (node/tasks/ppo.py).
        flags: of node.train, by name: lr, lr_schedule, final_lr, clip_norm.
    """

    options: Mapping[str, Value] = field(default_factory=dict)
    flags: Mapping[str, Value] = field(default_factory=dict)


LINEAR: Mapping[str, Value] = {"lr_schedule": "linear", "final_lr": 0.0}
PRESETS: Mapping[str, Preset] = {
    "CartPole-v1": Preset(
        {
            "total_timesteps": 100_000,
            "num_envs": 12,
            "num_steps": 32,
            "num_minibatches": 1,
            "update_epochs": 20,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "anneal_clip": True,
        },
        {"lr": 1e-3, **LINEAR},
    ),
    "Acrobot-v1": Preset(
        {
            "total_timesteps": 1_000_000,
            "num_envs": 12,
            "num_steps": 256,
            "num_minibatches": 16,
            "update_epochs": 4,
            "gae_lambda": 0.94,
            "normalise": True,
        },
        {"lr": 3e-4},
    ),
    "Pendulum-v1": Preset(
        {
            "total_timesteps": 100_000,
            "num_envs": 12,
            "num_steps": 256,
            "num_minibatches": 32,
            "update_epochs": 10,
            "gamma": 0.9,
            "gsde": True,
        },
        {"lr": 1e-3},
    ),
}
