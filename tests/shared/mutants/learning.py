"""Mutations of strategies, codecs, checkpoints and reinforcement learning."""

from mutants.mutation import Mutation

OF_SAME = "tests/node/test_algorithms.py::"
OF_REPLAY = "tests/node/test_prioritised_replay.py::"

LEARNING = (
    Mutation(
        "fp16 and bf16 swapped",
        "node/dist/codec.py",
        '{"fp16": torch.float16, "bf16": torch.bfloat16}',
        '{"fp16": torch.bfloat16, "bf16": torch.float16}',
        "tests/node/test_codec.py::test_half_numbers_travel_as_what_they_are_called",
    ),
    Mutation(
        "int8 cut off and not rounded",
        "node/dist/codec.py",
        "scales.clamp_min(1e-38)).round()",
        "scales.clamp_min(1e-38)).trunc()",
        "tests/node/test_codec.py::test_eight_bits_are_off_by_half_a_step_at_most",
    ),
    Mutation(
        "FedAvg a step late",
        "node/strategies/fedavg.py",
        "if step % self.H == 0:",
        "if step % self.H == 1:",
        OF_SAME + "test_the_same_mathematics[localsgd from the first step = fedavg]",
    ),
    Mutation(
        "FedAvg by samples is even",
        "node/strategies/fedavg.py",
        "own * self.samples, self.samples",
        "own, 1",
        OF_SAME + "test_weights_are_the_samples_that_a_rank_has",
    ),
    Mutation(
        "DiLoCo without Nesterov",
        "node/strategies/outer.py",
        'nesterov = kind == "nesterov" and momentum > 0',
        "nesterov = False",
        OF_SAME + "test_diloco_is_its_paper",
    ),
    Mutation(
        "DeMo sends the same again",
        "node/strategies/demo.py",
        "momentum.sub_(chunks.tensor(value, place))",
        "pass",
        OF_SAME + "test_demo_is_its_reference",
    ),
    Mutation(
        "PowerSGD forgets its error",
        "node/strategies/lowrank.py",
        "gradient.reshape(self._error.shape) + self._error",
        "gradient.reshape(self._error.shape)",
        OF_SAME + "test_powersgd_is_its_paper",
    ),
    Mutation(
        "gossip keeps more of its own",
        "node/strategies/graphs.py",
        "1 / (1 + max(",
        "1 / (2 + max(",
        OF_SAME + "test_gossip_is_its_paper",
    ),
    Mutation(
        "SPARTA draws the same each step",
        "node/strategies/masks.py",
        "self._seed + 1_000_003 * number",
        "self._seed",
        "tests/node/test_golden.py::test_losses_of_a_strategy_are_golden",
    ),
    Mutation(
        "all ranks drop the same activations",
        "node/train.py",
        "config.seed + 1_000_003 * (rank + 1)",
        "config.seed",
        "tests/node/test_loop.py::test_ranks_drop_different_activations",
    ),
    Mutation(
        "Python's chances not resumed",
        "node/training/checkpoint.py",
        'random.setstate(before["python"])',
        "pass",
        "tests/node/test_checkpoint.py::test_a_task_that_draws_by_itself_goes_on_bit_for_bit",
    ),
    Mutation(
        "n-step targets without discount",
        "node/replay/targets.py",
        "gamma ** (k - t) * rewards[k]",
        "rewards[k]",
        OF_REPLAY + "test_targets_by_hand",
    ),
    Mutation(
        "a sum tree that does not go on",
        "node/replay/sum_tree.py",
        "left -= np.where(beyond, self._sums[nodes], 0.0)",
        "pass",
        OF_REPLAY + "test_a_sum_tree_finds_what_plain_sums_find",
    ),
    Mutation(
        "V-trace: rho as far back as c",
        "node/rl/vtrace.py",
        "ratios.clamp(max=rho_bar), ratios.clamp(max=c_bar)",
        "ratios.clamp(max=rho_bar), ratios.clamp(max=rho_bar)",
        "tests/node/test_impala.py::test_targets_are_the_papers_sums",
    ),
    Mutation(
        "GAE without lambda",
        "node/rl/rollout.py",
        "error + gamma * gae_lambda * gain * goes_on",
        "error + gamma * gain * goes_on",
        "tests/node/test_ppo.py::test_advantages_are_the_discounted_sum_of_errors",
    ),
    Mutation(
        "PPO clips the other side",
        "node/rl/loss.py",
        "-torch.min(gains * ratio",
        "-torch.max(gains * ratio",
        "tests/node/test_ppo.py::test_the_loss_is_clipped_on_the_side_that_gains",
    ),
    Mutation(
        "ranks learn from the same samples",
        "node/training/shards.py",
        "position * together + rank * batch_size",
        "position * together",
        "tests/node/test_loop.py::test_samples_are_shared_out_without_overlap_and_reordered_each_epoch",
    ),
)
