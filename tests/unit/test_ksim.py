"""Distributed PPO with ksim's names: the constraints of ksim's guide, in its words, are checked before any start."""

from dataclasses import dataclass
from typing import Optional

import pytest

from node.ksim import DistributedPPOConfig, DistributedPPOTask, DistributedRLConfig
from node.rl.presets import PRESETS
from node.tasks.ppo import Ppo


@pytest.fixture
def devices(monkeypatch):
    """A function that makes this process rank `rank` of `world_size`."""

    def be(rank, world_size):
        ours = {"RANK": rank, "WORLD_SIZE": world_size, "MASTER_ADDR": "a", "MASTER_PORT": 1}
        for name, value in ours.items():
            monkeypatch.setenv(name, str(value))

    return be


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"num_envs": 10, "batch_size": 10},
            r"Number of environments \(10\) must be divisible by number of devices \(3\)",
        ),
        (
            {"batch_size": 8, "num_batches": 2},
            r"Batch size \(8\) times number of batches \(2\) must equal number of environments \(12\)",
        ),
        (
            {"batch_size": 4, "rollout_length": 32},
            r"Rollout length \(32\) must be divisible by number of batches \(3\)",
        ),
        (
            {"batch_size": 5},
            r"Batch size \(5\) times number of batches \(2\) must equal number of environments \(12\)",
        ),
        (
            {"batch_size": 24},
            r"Batch size \(24\) times number of batches \(0\) must equal number of environments \(12\)",
        ),
        ({"grad_sync_period": 0}, "grad_sync_period must be at least 1, not 0"),
        ({"num_envs": 0, "batch_size": 4, "num_batches": 0}, "num_envs must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"num_batches": -1, "batch_size": -12}, "batch_size must be at least 1, not -12"),
        ({"rollout_length": 0}, "rollout_length must be at least 1, not 0"),
        (
            {"num_batches": 5},
            r"Batch size \(2\) times number of batches \(5\) must equal number of environments \(12\)",
        ),
        ({"env": "CartPole"}, "unknown environment 'CartPole': did you mean 'CartPole-v1'"),
    ],
)
def test_what_cannot_be_is_a_value_error(devices, config, message):
    devices(0, 3)
    with pytest.raises(ValueError, match=message):
        DistributedPPOTask(DistributedRLConfig(**config))


@pytest.mark.parametrize(("num_envs", "batch_size"), [(16, 8), (32, 16), (8, 4), (64, 32)])
def test_the_guides_examples_need_no_number_of_batches(devices, num_envs, batch_size):
    devices(0, 2)
    config = DistributedRLConfig(
        num_envs=num_envs, batch_size=batch_size, pmap_axis_name="device", grad_sync_period=1
    )
    DistributedPPOTask(config)
    assert "num_minibatches=2" in config.flags(Ppo)


def test_each_rank_says_which_environments_it_has(devices, capsys):
    devices(1, 3)
    DistributedPPOTask(DistributedRLConfig()).verify_distributed_setup()
    assert capsys.readouterr().out == "Device 1: environments 4-7\n"
    devices(0, 3)
    DistributedPPOTask(DistributedRLConfig()).verify_distributed_setup()
    assert capsys.readouterr().out == "Total environments: 12\nDevice 0: environments 0-3\n"


def test_the_sync_period_is_a_strategy():
    assert {"ddp", "sync=all"} < set(DistributedRLConfig().flags(Ppo))
    assert {"fedavg", "H=4"} < set(DistributedRLConfig(grad_sync_period=4).flags(Ppo))
    assert {"diloco", "H=4"} < set(
        DistributedRLConfig(grad_sync_period=4, strategy="diloco").flags(Ppo)
    )


@pytest.mark.parametrize("env", PRESETS)
def test_what_is_not_set_is_the_environments_own(env):
    """The sizes of a rollout used to be cart-pole's, whatever the environment."""
    preset = PRESETS[env].options
    config = DistributedRLConfig(env=env)
    assert config.sizes(Ppo) == tuple(
        preset[name] for name in ("num_envs", "num_steps", "num_minibatches")
    )
    assert not any(
        text.startswith(("update_epochs", "total_timesteps")) for text in config.flags(Ppo)
    )


def test_a_rollout_is_as_long_as_batches_need(devices):
    """The guide asks nothing of its length, so one that is not set never is the reason for an error."""
    devices(0, 3)
    config = DistributedRLConfig(num_envs=24, batch_size=8)
    DistributedPPOTask(config)
    assert config.sizes(Ppo) == (24, 33, 3)


@dataclass
class Mine(DistributedPPOConfig):
    """With settings of its own."""

    my_param: float = 1.0
    name: str | None = None
    many: list[int] | None = None
    maybe: Optional[int] = None  # noqa: UP045 - users write it


class MyTask(DistributedPPOTask[Mine]):
    """A task as in the guide."""

    def get_rewards(self, physics_model):
        return []


def test_a_task_and_its_settings_are_derived_as_in_the_guide(devices):
    devices(0, 2)
    task = MyTask(Mine(num_envs=8, my_param=2.5))
    assert task.config.my_param == 2.5
    assert task.shard_environments() == range(4)


def test_a_command_line_sets_what_it_names():
    words = ["num_envs=32", "batch_size=16", "my_param=3", "name=x", "maybe=4"]
    config = Mine(batch_size=6).with_words(words)
    assert config == Mine(num_envs=32, batch_size=16, my_param=3.0, name="x", maybe=4)
    assert config.own_settings() == {"my_param": 3.0, "name": "x", "many": None, "maybe": 4}


def test_settings_of_ones_own_are_compared_by_what_is_the_same_in_another_process(devices):
    """An address is not: one that is in a checkpoint would let no process resume."""
    devices(0, 1)
    own = MyTask(Mine(my_param=2.5, name="x", many=[len, MyTask(Mine())]))._ppo.own_settings()
    many = f"[<built-in function len>, <{__name__}.MyTask object>]"
    assert own == {"my_param": "2.5", "name": "'x'", "many": many, "maybe": "None"}
    assert DistributedPPOTask(DistributedPPOConfig())._ppo.own_settings() == {}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("num_env=32", "unknown setting 'num_env': did you mean 'num_envs'"),
        ("num_envs=many", "num_envs: 'many' is not a whole number"),
        ("--help", r"--help: write KEY=VALUE; there is batch_size, .*num_envs"),
        ("many=1", r"many: a list\[int\] | None cannot be given by KEY=VALUE"),
    ],
)
def test_a_word_that_sets_nothing_is_refused(word, message):
    with pytest.raises(ValueError, match=message):
        Mine().with_words([word])


@pytest.mark.parametrize("name", ["_rollout", "_get_initial_env_state"])
def test_a_hook_that_would_never_be_called_is_refused(name):
    """Cart-pole used to be trained instead, without a word."""
    with pytest.raises(TypeError, match=f"Other.{name} would never be called: .*make_environment"):
        type("Other", (DistributedPPOTask,), {name: lambda self: None})


class OwnWorld(DistributedPPOTask[DistributedPPOConfig]):
    """In an environment of its own."""

    def make_environment(self):
        raise NotImplementedError


def test_an_environment_of_ones_own_has_no_preset(devices):
    devices(0, 3)
    flags = OwnWorld(DistributedPPOConfig())._train_config
    assert (flags.lr, flags.task_options["num_steps"]) == (2.5e-4, 128)
    assert flags.task_options["env"] == "OwnWorld"
    with pytest.raises(ValueError, match="env=Acrobot-v1: OwnWorld makes its own environment"):
        OwnWorld(DistributedPPOConfig(env="Acrobot-v1"))
