"""Environments by name, each with its default hyperparameters. Nothing here imports gymnasium.

The numbers are those of RL Baselines3 Zoo (https://github.com/DLR-RM/rl-baselines3-zoo, hyperparams/ppo.yml; for Hopper
and Walker2d, those for -v4) and, where it says nothing, Stable-Baselines3's defaults, with two differences:

- `vf_coef` is twice the zoo's: here, as in CleanRL, it weights half the critic's squared error (loss.py), in
  Stable-Baselines3 all of it.
- `num_envs` is 12, which 2, 3, 4 and 6 ranks can share, and a minibatch has equally many steps of each environment.
  Hence these numbers of samples (environments x steps) per rollout, and samples per minibatch:

      CartPole           12 x 32  = 384,  384 (zoo:  8 x 32   = 256,  256)
      Acrobot            12 x 340 = 4080, 60  (zoo: 16 x 256  = 4096, 64)
      Pendulum           12 x 340 = 4080, 60  (zoo:  4 x 1024 = 4096, 64)
      Hopper, Walker2d   12 x 48  = 576,  36  (zoo:  1 x 512  = 512,  32)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.base.options import Value, unknown


@dataclass(frozen=True)
class Preset:
    """The default hyperparameters of an environment.

    Attributes:
        options: options of the task, by name (node/tasks/ppo.py).
        flags: flags of node.train, by name: lr, lr_schedule, final_lr, clip_norm.
        acts_in_numbers: whether actions are continuous, not discrete.
        needs: the Python package that the environment needs besides gymnasium.
    """

    options: Mapping[str, Value] = field(default_factory=dict)
    flags: Mapping[str, Value] = field(default_factory=dict)
    acts_in_numbers: bool = False
    needs: str = ""


LINEAR: Mapping[str, Value] = {"lr_schedule": "linear", "final_lr": 0.0}
LONG_ROLLOUT: Mapping[str, Value] = {
    "num_envs": 12,
    "num_steps": 340,
    "num_minibatches": 68,
    "vf_coef": 2 * 0.5,
}
MUJOCO_ROLLOUT: Mapping[str, Value] = {
    "total_timesteps": 1_000_000,
    "num_envs": 12,
    "num_steps": 48,
    "num_minibatches": 16,
    "normalise": True,
}
PRESETS: Mapping[str, Preset] = {
    "CartPole-v1": Preset(
        {
            "total_timesteps": 100_000,
            "num_envs": 12,
            "num_steps": 32,
            "num_minibatches": 1,
            "update_epochs": 20,
            "vf_coef": 2 * 0.5,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "anneal_clip": True,
        },
        {"lr": 1e-3, **LINEAR},
    ),
    "Acrobot-v1": Preset(
        {
            "total_timesteps": 1_000_000,
            **LONG_ROLLOUT,
            "update_epochs": 4,
            "gae_lambda": 0.94,
            "normalise": True,
        },
        {"lr": 3e-4},
    ),
    "Pendulum-v1": Preset(
        {
            "total_timesteps": 100_000,
            **LONG_ROLLOUT,
            "update_epochs": 10,
            "gamma": 0.9,
            "gsde": True,
        },
        {"lr": 1e-3},
        acts_in_numbers=True,
    ),
    "Hopper-v5": Preset(
        {
            **MUJOCO_ROLLOUT,
            "update_epochs": 5,
            "gamma": 0.999,
            "gae_lambda": 0.99,
            "ent_coef": 0.00229519,
            "vf_coef": 2 * 0.835671,
            "hidden": 256,
            "activation": "relu",
            "log_std": -2.0,
        },
        {"lr": 9.80828e-5, "clip_norm": 0.7},
        acts_in_numbers=True,
        needs="mujoco",
    ),
    "Walker2d-v5": Preset(
        {
            **MUJOCO_ROLLOUT,
            "update_epochs": 20,
            "clip_coef": 0.1,
            "ent_coef": 0.000585045,
            "vf_coef": 2 * 0.871923,
        },
        {"lr": 5.05041e-5, "clip_norm": 1.0},
        acts_in_numbers=True,
        needs="mujoco",
    ),
}

# Of an environment that has no preset: the learning rate of CleanRL's ppo.py, and the options' own defaults.
NO_PRESET = Preset(flags={"lr": 2.5e-4, **LINEAR})


def preset_of(env: str) -> Preset:
    """Return the preset of an environment.

    Raises:
        OptionError: there is no environment of that name.
    """
    if env not in PRESETS:
        raise unknown("environment", env, PRESETS)
    return PRESETS[env]


def needed_packages(env: str) -> Mapping[str, str]:
    """Return the Python packages that an environment needs besides gymnasium, each with the option that needs it."""
    needs = PRESETS[env].needs
    return {needs: f"env={env}"} if needs else {}
