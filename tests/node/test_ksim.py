"""Tasks with environments, rewards and models of the user's own, on real ranks: Ksim's, and those of ppo and impala."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import pytest
import torch
from conftest import Forked, ForkedTrain, free_port, torchrun_environ
from torch import nn

from node.base.options import OptionError
from node.ksim import DistributedPPOConfig, DistributedPPOTask, Reward
from node.tasks import task_class
from node.training.checkpoint import read, write_whole
from node.training.config import parse_config

GOAL, LIMIT = 4, 20
QUICK = {
    "num_envs": 4,
    "rollout_length": 32,
    "num_batches": 2,
    "num_passes": 4,
    "learning_rate": 0.01,
}


class Corridor(gymnasium.Env):
    """Walk left or right from the middle; the left end pays, the right end does not."""

    observation_space = gymnasium.spaces.Box(-GOAL, GOAL, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(-1, 2))
        return self._seen(), {}

    def step(self, action):
        self.place += 1 if action else -1
        return self._seen(), float(self.place == -GOAL), abs(self.place) == GOAL, False, {}

    def _seen(self):
        return torch.tensor([self.place], dtype=torch.float32).numpy()


class RightEnd(Reward):
    """The right end pays."""

    scale = 2.0

    def get_reward(self, transition):
        return float(transition.next_obs[0] == GOAL and transition.terminated)


class Walk(DistributedPPOTask[DistributedPPOConfig]):
    """In an environment of its own."""

    settings = DistributedPPOConfig

    def make_environment(self):
        return gymnasium.wrappers.TimeLimit(Corridor(), LIMIT)


class WalkRight(Walk):
    """With rewards of its own."""

    def get_rewards(self, physics_model):
        assert isinstance(physics_model.unwrapped, Corridor)
        return [RightEnd()]


@dataclass
class PaidConfig(DistributedPPOConfig):
    """With what the right end pays."""

    pay: float = 2.0


class WalkForPay(Walk):
    """With rewards that a setting of its own decides."""

    settings = PaidConfig

    def get_rewards(self, physics_model):
        reward = RightEnd()
        reward.scale = self.config.pay
        return [reward]


class WalkWide(Walk):
    """With another actor."""

    def _get_initial_model(self, rng):
        model = super()._get_initial_model(rng)
        model.actor = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
        return model


class WalkWrongly(Walk):
    """With a model that is no policy."""

    def _get_initial_model(self, rng):
        return nn.Linear(1, 2)


def be_script(task, settings, environ, folder):
    os.environ |= environ
    os.environ["GRADWIRE_RUN_DIR"] = str(folder)
    model = task.launch(task.settings(**QUICK), [f"{k}={v}" for k, v in settings.items()])
    torch.save(model.state_dict(), folder / f"model{environ.get('RANK', 0)}.pt")


def launch(task, folder, ranks=1, **settings):
    """Run a script that launches a task on some ranks; return what they printed, and their exit codes."""
    port = free_port()
    environs = [torchrun_environ(rank, ranks, port) if ranks > 1 else {} for rank in range(ranks)]
    scripts = [Forked(be_script, task, settings, environ, folder) for environ in environs]
    said = ["".join(script.communicate()) for script in scripts]
    return said, [script.returncode for script in scripts]


def return_of(folder, name="metrics.jsonl"):
    return json.loads((folder / name).read_text().splitlines()[-1])["tested"]["test_return"]


def test_an_environment_of_ones_own_is_learnt(tmp_path):
    said, codes = launch(Walk, tmp_path, total_timesteps=4000)
    assert codes == [0], said
    assert "Total environments: 4" in said[0]
    assert return_of(tmp_path) == 1.0  # every episode ends on the left


def test_rewards_replace_those_of_the_environment(tmp_path):
    said, codes = launch(WalkRight, tmp_path, total_timesteps=4000)
    assert codes == [0], said
    assert return_of(tmp_path) == 2.0  # each ends on the right, at twice the reward's 1


def test_a_model_of_ones_own_is_trained_the_same_on_both_ranks(tmp_path):
    said, codes = launch(WalkWide, tmp_path, ranks=2, total_timesteps=1024, grad_sync_period=8)
    assert codes == [0, 0], said
    assert "Device 1: environments 2-3" in said[1]
    first, second = (torch.load(tmp_path / f"model{rank}.pt") for rank in range(2))
    assert first["actor.0.weight"].shape == (3, 1)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_checkpoint_is_continued_from(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    said, codes = launch(Walk, before, total_timesteps=1024, checkpoint_every=8)
    assert codes == [0], said
    said, codes = launch(Walk, after, total_timesteps=1024, resume=before)
    assert codes == [0] and "goes on after step" in said[0], said
    first, second = (torch.load(folder / "model0.pt") for folder in (before, after))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def paid(tmp_path):
    """The checkpoint of a run whose rewards a setting of its own decided."""
    (tmp_path / "before").mkdir()
    said, codes = launch(WalkForPay, tmp_path / "before", total_timesteps=256, checkpoint_every=8)
    assert codes == [0], said
    return tmp_path / "before" / "checkpoint-rank0-step8.pt"


def test_a_checkpoint_is_not_continued_from_with_other_settings_of_ones_own(paid, tmp_path):
    """Rewards may depend on them."""
    said, codes = launch(WalkForPay, tmp_path, total_timesteps=256, resume=paid.parent, pay=3.0)
    assert codes == [2], said
    error = said[0].splitlines()[-1]
    assert error.endswith('was made with own_settings {"pay": "2.0"}, not {"pay": "3.0"}')
    said, codes = launch(WalkForPay, tmp_path, total_timesteps=256, resume=paid.parent, pay=2.0)
    assert codes == [0] and "goes on after step 8" in said[0], said


def test_a_checkpoint_of_an_earlier_version_does_not_know_settings_of_ones_own(paid, tmp_path):
    state = read(paid, torch.device("cpu"))
    del state["settings"]["own_settings"]
    write_whole(paid, state)
    said, codes = launch(WalkForPay, tmp_path, total_timesteps=256, resume=paid.parent, pay=2.0)
    assert codes == [0] and "goes on after step 8" in said[0], said


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        (WalkWrongly, {}, "_get_initial_model: Linear is no node.rl.policy.ActorCritic"),
        (Walk, {"env": "Pendulum-v1"}, "env=Pendulum-v1: Walk makes its own environment"),
        (Walk, {"num_env": 8}, "unknown setting 'num_env': did you mean 'num_envs'?"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, task, settings, message):
    said, codes = launch(task, tmp_path, **settings)
    assert codes == [2], said
    assert said[0].splitlines()[-1].endswith(f"error: {message}")


MINE = """
from dataclasses import dataclass

import gymnasium

from node.tasks.impala import Impala
from node.tasks.ppo import Ppo


class Numbers(gymnasium.Env):
    observation_space = gymnasium.spaces.{observations}
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {{}}

    def step(self, action):
        return self.observation_space.sample() * 0, float(action), False, False, {{}}


@dataclass
class MyPpo(Ppo):
    def make_environment(self):
        return gymnasium.wrappers.TimeLimit(Numbers(), 10)


@dataclass
class MyImpala(Impala):
    def make_environment(self):
        return gymnasium.wrappers.TimeLimit(Numbers(), 10)
"""


def mine(folder: Path, observations="Box(-1, 1, (3,))"):
    (folder / "mine.py").write_text(MINE.format(observations=observations))
    return folder / "mine.py"


def test_a_task_derived_from_ppo_makes_its_own_environment(run, tmp_path):
    words = ("total_timesteps=480", "num_envs=4", "num_steps=12", "num_minibatches=2")
    flags = [word for text in words for word in ("--task-set", text)]
    ranks = run(2, "--task", f"{mine(tmp_path)}:MyPpo", "--strategy", "ddp", *flags)
    assert 0 <= ranks.end["tested"]["test_return"] <= 10
    assert ranks.of("start")[0]["config"]["lr"] == 2.5e-4


def test_so_does_one_derived_from_impala(tmp_path):
    words = ["--task", f"{mine(tmp_path)}:MyImpala", "--steps", 5, "--run-dir", tmp_path]
    port = free_port()
    ranks = [ForkedTrain(words, torchrun_environ(rank, 2, port)) for rank in range(2)]
    said = ["".join(rank.communicate()) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert 0 <= return_of(tmp_path, "metrics-rank0.jsonl") <= 10


def test_observations_that_no_policy_sees_are_refused(run, tmp_path):
    with pytest.raises(AssertionError, match=r"Numbers: observations are Discrete\(3\), not Box"):
        run(1, "--task", f"{mine(tmp_path, 'Discrete(3)')}:MyPpo")


@pytest.mark.computes
def test_noise_of_continuous_actions_is_refused_for_others(tmp_path):
    name = f"{mine(tmp_path)}:MyPpo"
    task = task_class(name)(gsde=True)
    parse_config(["--task", name, "--task-set", "gsde=true"], {})  # only the environment knows
    with pytest.raises(OptionError, match="gsde: the actions of MyPpo are no numbers"):
        task.load(None)


@pytest.mark.computes
def test_a_hook_that_would_never_be_called_is_refused():
    with pytest.raises(TypeError, match="Mine._rollout would never be called"):
        type("Mine", (Walk,), {"_rollout": lambda self: None})
