"""Tests of strategies against each other: those with the same mathematics give the same runs.

Finds wrong averages, optimizers other than the requested one, ranks that drift apart, and byte counts that differ from
the algorithm's card.
"""

import pytest
import torch

PARAMETER_BYTES = 4 * 1_199_882
SGD = ("--optimizer", "sgd", "--lr", "0.05", "--dropout", "0")


def distance(a, b):
    """Return the largest difference between the parameters of two runs' first ranks."""
    return float((a.parameters[0] - b.parameters[0]).abs().max())


@pytest.mark.parametrize("momentum", ["0", "0.9"])
def test_ddp_on_3_ranks_is_one_process_with_the_tripled_batch(run, momentum):
    common = (*SGD, "--strategy", "ddp", "--steps", "6", "--momentum", momentum)
    three = run(3, *common, "--batch-size", "16")
    one = run(1, *common, "--batch-size", "48")
    assert distance(three, one) < 1e-5


def test_fedavg_averaging_every_step_with_sgd_is_ddp_with_sgd(run, run_once):
    fedavg = run(
        3, *SGD, "--batch-size", "16", "--steps", "6", "--strategy", "fedavg", "--set", "H=1"
    )
    ddp = run_once(3, *SGD, "--batch-size", "16", "--steps", "6", "--strategy", "ddp")
    assert distance(fedavg, ddp) < 1e-5


def test_fedavg_averaging_less_often_is_not_ddp(run, run_once):
    """Check that the equality above can fail."""
    fedavg = run(
        3, *SGD, "--batch-size", "16", "--steps", "6", "--strategy", "fedavg", "--set", "H=2"
    )
    ddp = run_once(3, *SGD, "--batch-size", "16", "--steps", "6", "--strategy", "ddp")
    assert distance(fedavg, ddp) > 1e-4


@pytest.mark.parametrize(("strategy", "settings"), [("ddp", []), ("fedavg", ["--set", "H=4"])])
def test_all_ranks_end_with_the_same_parameters_but_saw_different_samples(run, strategy, settings):
    ranks = run(3, "--batch-size", "16", "--steps", "6", "--strategy", strategy, *settings)
    assert torch.equal(ranks.parameters[0], ranks.parameters[1])
    assert torch.equal(ranks.parameters[0], ranks.parameters[2])
    assert len({ranks.of("end", rank)[0]["final_loss"] for rank in range(3)}) == 3


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_sent_bytes_are_the_cards(run, world_size):
    ring = 2 * (world_size - 1) / world_size * PARAMETER_BYTES
    common = ("--batch-size", "4", "--steps", "5")
    ddp = run(world_size, *common, "--strategy", "ddp")
    fedavg = run(world_size, *common, "--strategy", "fedavg", "--set", "H=2")
    for rank in range(world_size):
        steps = [step["sent_bytes"] for step in ddp.of("step", rank)]
        assert steps == pytest.approx([ring] * 5, abs=1)
        # After steps 2 and 4, and after the last.
        steps = [step["sent_bytes"] for step in fedavg.of("step", rank)]
        assert steps == pytest.approx([0, ring, 0, ring, ring], abs=1)
        assert fedavg.of("end", rank)[0]["sent_bytes"]["train"] == sum(steps)


def test_fedavg_is_tested_with_what_the_ranks_last_agreed_on(run):
    flags = ("--strategy", "fedavg", "--set", "H=4", "--batch-size", "16", "--steps", "9")
    often = run(2, *flags, "--eval-every", "1")
    loss = [line["test_loss"] for line in often.of("eval")]
    assert loss[0] == loss[1] == loss[2]
    assert loss[3] == loss[4] == loss[5] == loss[6]
    assert len({loss[0], loss[3], loss[7], loss[8]}) == 4
    # Tests do not change the training.
    assert torch.equal(often.parameters[0], run(2, *flags).parameters[0])
