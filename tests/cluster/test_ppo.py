"""PPO on real nodes: environments are divided among ranks, policies averaged over links, and all is accounted for."""

import json
from pathlib import Path

import pytest
from containers import PROJECT_DIR, last_run

from cluster.engine.client import Engine
from cluster.engine.image import last_args

SHORT = ("--task-set", "total_timesteps=1152", "--task-set", "eval_episodes=20")


@pytest.fixture(scope="module")
def averaged(shared):
    """A short training over wan, with checkpoints in the middle: its flags and its summary."""
    words = ("--task", "ppo", *SHORT, "--strategy", "fedavg", "--set", "H=20", "--no-verify")
    asked = ("--nodes", "3", "--profile", "wan", "--checkpoint-every", "30")
    return words, shared.json("launch", *asked, *words)


def test_policies_are_averaged_over_wan(averaged):
    _, summary = averaged
    assert summary["steps"] == 3 * 20  # three rollouts of 12 x 32
    assert 8 <= summary["tested"]["test_return"] <= 500
    # Three averages of 9,155 parameters in a ring of three, and two small ones at the start.
    assert summary["bytes"]["payload"] < 1.05 * 3 * 4 * 4 * 9155
    lines = (Path(summary["folder"]) / "metrics" / "node3.jsonl").read_text().splitlines()
    rollouts = [line for line in map(json.loads, lines) if line["event"] == "rollout"]
    assert [line["env_steps"] for line in rollouts] == [128, 256, 384]


@pytest.mark.slow
def test_six_ranks_go_on_from_the_checkpoints_of_three(averaged, unshaped):
    """Each node receives all checkpoints, and each rank finds its environments in them."""
    words, first = averaged
    more = ("--nproc-per-node", "2", "--resume", first["folder"])
    second = unshaped.json("launch", *words, *more)
    lines = (Path(second["folder"]) / "metrics" / "node3-1.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    steps = [event["step"] for event in events if event["event"] == "step"]
    assert steps == list(range(31, 61))
    assert [event["env_steps"] for event in events if event["event"] == "rollout"] == [3 * 32 * 2]
    assert 8 <= second["tested"]["test_return"] <= 500


def test_environments_that_three_ranks_cannot_share_are_refused_before_anything_starts(shared):
    words = ("--task", "ppo", "--task-set", "num_envs=10")
    refused = shared.run("launch", "--nodes", "3", *words, check=2)
    assert "num_envs: 10 environments cannot be shared evenly by 3 ranks" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 2


def test_an_environment_that_the_image_lacks_is_refused_before_anything_starts(shared):
    if "MUJOCO" in last_args(Engine()):
        pytest.skip("the node image has MuJoCo")
    words = ("--task", "ppo", "--task-set", "env=Hopper-v5")
    refused = shared.run("launch", "--nodes", "3", *words, check=2)
    assert "env=Hopper-v5 needs mujoco" in refused.stderr
    assert "python -m cluster.image --mujoco" in refused.stderr


@pytest.mark.slow
def test_a_task_of_ones_own_by_ksims_names_learns_its_own_rewards(unshaped):
    """A point that does nothing is paid for being near the middle only where its episode began there: some 45."""
    script = PROJECT_DIR / "examples" / "point_walk.py"
    words = ("total_timesteps=12000", "num_envs=6", "num_batches=2", "learning_rate=0.003")
    done = unshaped.run("launch", "--json", "--", script, *words, "effort=0.01")
    assert json.loads(done.stdout)["tested"]["test_return"] > 60


def test_a_script_by_ksims_names_is_launched_as_any_other(unshaped, tmp_path):
    script = PROJECT_DIR / "examples" / "cart_pole.py"
    done = unshaped.run("launch", "--", script, "total_timesteps=768")
    assert "node1 | Total environments: 12" in done.stdout
    assert "node3 | Device 2: environments 8-11" in done.stdout
    assert "test_return" in done.stdout
    run = last_run(unshaped, "cart_pole")
    assert (run / "model.pt").is_file() and (run / "metrics" / "node3.jsonl").is_file()
