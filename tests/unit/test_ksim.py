"""Distributed PPO with ksim's names: the constraints of ksim's guide, in its words, are checked before any start."""

import pytest

from node.ksim import DistributedPPOTask, DistributedRLConfig


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
            {"batch_size": 4, "num_batches": 3},
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
    assert "num_minibatches=2" in config.flags()


def test_each_rank_says_which_environments_it_has(devices, capsys):
    devices(1, 3)
    DistributedPPOTask(DistributedRLConfig()).verify_distributed_setup()
    assert capsys.readouterr().out == "Device 1: environments 4-7\n"
    devices(0, 3)
    DistributedPPOTask(DistributedRLConfig()).verify_distributed_setup()
    assert capsys.readouterr().out == "Total environments: 12\nDevice 0: environments 0-3\n"


def test_the_sync_period_is_a_strategy():
    assert {"ddp", "sync=all"} < set(DistributedRLConfig().flags())
    assert {"fedavg", "H=4"} < set(DistributedRLConfig(grad_sync_period=4).flags())
