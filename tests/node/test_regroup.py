"""Tests of PPO checkpoints that are resumed with another number of ranks, one process above all."""

import shutil

import pytest
import torch
from conftest import ForkedTrain

from node.dist.flat import flatten
from node.training.regroup import mean_of

# Three rollouts of 16 steps of 6 environments, 4 training steps each: 12 steps. Step 6 is within the second rollout.
FLAGS = ("--task", "ppo", "--task-set", "num_envs=6", "--task-set", "num_steps=16")
FLAGS += ("--task-set", "total_timesteps=288", "--task-set", "update_epochs=2")
FLAGS += ("--task-set", "num_minibatches=2", "--task-set", "eval_episodes=20")
FLAGS += ("--task-set", "normalise=true")
SAVE = ("--checkpoint-every", "6")


@pytest.mark.computes
def test_the_mean_is_of_what_has_one():
    parts = [
        {1: [torch.tensor([x, 1 / 3]), torch.tensor(7)], "name": f"rank {x}"}
        for x in (1.0, 2.0, 6.0)
    ]
    mean = mean_of(parts)
    # a value that all have stays the same to the bit
    assert mean[1][0].tolist() == [3.0, parts[0][1][0][1].item()]
    assert mean[1][1].dtype == torch.int64
    assert mean["name"] == "rank 1.0"


@pytest.mark.parametrize(("before", "after"), [(3, 1), (3, 2), (1, 3)])
def test_another_number_of_ranks_makes_the_same_steps(run, run_once, before, after):
    """With ddp and advantages normalised together, up to rounding; the schedule and the momentum continue, too."""
    flags = (*FLAGS, "--strategy", "ddp", "--task-set", "sync=all", "--optimizer", "sgd")
    flags += ("--momentum", "0.9", "--lr", "0.02", "--eval", "after", "--eval-every", "4")
    whole = run_once(before, *flags, *SAVE)
    rest = run(after, *flags, "--resume", str(whole.run_dir))
    assert torch.allclose(rest.parameters[0], whole.parameters[0], rtol=0, atol=1e-6)
    assert torch.allclose(rest.buffers[0], whole.buffers[0], rtol=1e-6)
    mine, theirs = means("step", "loss", rest, after), means("step", "loss", whole, before)
    assert list(mine) == [7, 8, 9, 10, 11, 12]
    assert mine == pytest.approx({step: theirs[step] for step in mine}, abs=1e-5)
    episodes = [
        means("rollout", "episodes", ranks, number)[9] * number
        for ranks, number in ((rest, after), (whole, before))
    ]
    assert episodes[0] == pytest.approx(episodes[1])
    tests = [[(line["step"], line["test_return"]) for line in r.of("eval")] for r in (rest, whole)]
    assert [step for step, _ in tests[0]] == [4, 8, 12]  # the test of step 4 was still to be made
    assert tests[0] == tests[1]


def means(event, name, ranks, number):
    """Return the mean over this number of ranks, by step."""
    lines = [ranks.of(event, rank) for rank in range(number)]
    return {
        each[0]["step"]: sum(line[name] for line in each) / number
        for each in zip(*lines, strict=True)
    }


def test_ranks_that_went_apart_go_on_from_their_mean(run, tmp_path):
    """The strategy starts from the mean, not from the start of the run; statistics count what all ranks have seen."""
    apart = run(3, *FLAGS, "--set", "H=100", "--task-set", "sync=none", *SAVE)
    files = [apart.run_dir / f"checkpoint-rank{rank}-step6.pt" for rank in range(3)]
    for rank, path in enumerate(files):  # in the folders to which a launch fetches them
        place = tmp_path / "fetched/files" / f"node{rank + 1}"
        place.mkdir(parents=True)
        shutil.copy(path, place)
    models = [torch.load(path, weights_only=True)["model"] for path in files]
    own = [flatten([m[name] for name in m if "normaliser" not in name]) for m in models]
    assert not torch.allclose(own[0], own[1], rtol=0, atol=1e-4)
    goes_on = (*FLAGS, "--task-set", "sync=none", "--resume", str(tmp_path / "fetched"))
    plain = run(1, *goes_on)
    outer = run(1, *goes_on, "--strategy", "diloco", "--set", "H=100")
    # With 0.7 and Nesterov's 0.9, the first outer step, at the end, goes 0.7 (1 + 0.9) of the way.
    mean = sum(own) / 3
    moved = [ranks.parameters[0] - mean for ranks in (plain, outer)]
    assert torch.allclose(moved[1], 0.7 * 1.9 * moved[0], rtol=0, atol=1e-6)
    assert float(moved[0].abs().max()) > 1e-4
    two = run(2, *goes_on, "--set", "H=100")
    counts = [float(ranks.buffers[0][0]) for ranks in (apart, plain, two)]
    assert counts == [96, 288, 144]
    assert plain.of("rollout")[0]["env_steps"] == 288


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_task_that_cannot_be_dealt_out_anew_is_refused_on_all_ranks(run, before, after):
    flags = ("--batch-size", "8", "--steps", "3")
    folder = run(before, *flags, "--checkpoint-every", "2").run_dir
    with pytest.raises(AssertionError, match=f"was made with ranks {before}, not {after}"):
        run(after, *flags, "--resume", str(folder))


def test_what_cannot_be_gone_on_from_is_one_line_and_exit_2(run):
    folder = run(3, *FLAGS, *SAVE).run_dir
    second = folder / "checkpoint-rank1-step6.pt"

    def refused(*more):
        process = ForkedTrain([*FLAGS, *more, "--resume", folder])
        _, err = process.communicate()
        assert (process.returncode, err.count("\n")) == (2, 1), err
        return err

    assert 'was made with task_options {"' in refused("--task-set", "gamma=0.5")
    assert "step6.pt was made with lr 0.001, not 0.5" in refused("--lr", "0.5")
    good = second.read_bytes()
    second.write_bytes(good[: len(good) // 2])
    assert f"{second} is damaged, or no checkpoint" in refused()
    shutil.copy(folder / "checkpoint-rank2-step6.pt", second)
    assert f"{second} is of another run than" in refused()
    second.rename(folder / "checkpoint-rank1-step7.pt")
    assert "no step that all 3 ranks have" in refused()
    (folder / "checkpoint-rank1-step7.pt").unlink()
    assert "no checkpoint-rank1-step….pt there, and there were 3 ranks" in refused()
