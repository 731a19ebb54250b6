"""Tests of PPO: its parts against hand calculations and definitions, and the whole on real ranks."""

import json
from functools import partial
from importlib.util import find_spec

import gymnasium
import pytest
import torch

from node.base.options import OptionError
from node.rl.environments import Environments
from node.rl.loss import Minibatch, ppo_loss
from node.rl.minibatches import action_noise, minibatches
from node.rl.moments import Normaliser, mean_and_std, sums_by_minibatch, sums_of
from node.rl.play import play
from node.rl.policy import ActorCritic
from node.rl.rollout import Collector, Rollout, advantages
from node.training.config import parse_config

pytestmark = pytest.mark.computes
# Two rollouts of 16 steps of 6 environments, each used twice in two minibatches: 8 steps.
SMALL = ("--task", "ppo", "--task-set", "num_envs=6", "--task-set", "num_steps=16")
SMALL += ("--task-set", "total_timesteps=192", "--task-set", "update_epochs=2")
SMALL += ("--task-set", "num_minibatches=2", "--task-set", "eval_episodes=20")
NEEDS_MUJOCO = pytest.mark.skipif(
    not find_spec("mujoco"), reason="needs `python -m cluster.image --mujoco`"
)
WALKERS = [pytest.param(name, marks=NEEDS_MUJOCO) for name in ("Hopper-v5", "Walker2d-v5")]
KINDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", *WALKERS]


def named(name, numbers, seed):
    return Environments(partial(gymnasium.make, name), numbers, seed)


def actions_of(environments, steps, seed=3):
    """Return the noise from which a new policy draws its actions."""
    generator = torch.Generator().manual_seed(seed)
    size = environments.actions or environments.action_size
    return torch.rand(steps, len(environments.reset()), size, generator=generator)


def test_advantages_are_the_discounted_sum_of_errors():
    torch.manual_seed(1)
    steps, gamma, lam = 9, 0.9, 0.8
    rewards, values = torch.rand(steps, 2), torch.rand(steps, 2)
    done, last = torch.zeros(steps, 2, dtype=torch.bool), torch.rand(2)
    done[3, 0] = done[8, 1] = True
    found = advantages(rewards, values, done, last, gamma, lam)
    following = torch.cat([values[1:], last[None]])
    errors = rewards + gamma * following * ~done - values
    for n in range(2):
        for step in range(steps):
            wanted, weight = 0.0, 1.0
            for later in range(step, steps):
                wanted += weight * float(errors[later, n])
                weight *= gamma * lam
                if done[later, n]:
                    break
            assert float(found[step, n]) == pytest.approx(wanted, abs=1e-5)


class Oracle(ActorCritic):
    """A critic that values every state at 10."""

    def value(self, seen):
        return torch.full((len(seen),), 10.0)


def test_what_comes_after_an_episode_whose_time_was_up_is_what_the_critic_says():
    """Pendulum never terminates: it is truncated after 200 steps."""
    torch.manual_seed(1)
    collector = Collector(named("Pendulum-v1", [0], 1), 0.9, 0.0)
    rollout, _ = collector.collect(Oracle(3, 0, 1, 8, normalise=False), torch.randn(203, 1, 1))
    assert [length for _, length in collector.ended] == [200]
    # By Pendulum's own formula, from the angle, its speed and the torque.
    cosine, sine, speed = rollout.seen.unbind(1)
    torque = rollout.actions[:, 0].clamp(-2, 2)
    rewards = -(torch.atan2(sine, cosine) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    # With lambda 0 an advantage is reward + gamma * next value - value. After step 200, the next value is the critic's
    # for the next state of that episode, not of the following one.
    assert torch.allclose(rollout.advantages, rewards + 0.9 * 10 - 10, atol=1e-3)


def make_rollout(model, samples=4, moved=0.0):
    """Return samples of the model, as if from a policy whose log-probabilities were `moved` lower."""
    seen = torch.randn(samples, 4)
    actions = torch.randint(2, (samples,))
    with torch.no_grad():
        log_probs = model.distribution(seen).log_prob(actions) - moved
        values = model.value(seen)
    return Rollout(seen, actions, log_probs, values, torch.ones(samples))


@pytest.mark.parametrize(
    ("moved", "gain", "policy"),
    [
        (0.0, 2.0, -2.0),  # unchanged: the gain itself
        (1.0, 2.0, -2.0 * 1.2),  # 2.7 times as likely, and good: counts 1.2 times
        (1.0, -2.0, 2.0 * 2.718282),  # 2.7 times as likely, and bad: counts in full
        (-1.0, -2.0, 2.0 * 0.8),  # less likely, and bad: counts 0.8 times
    ],
)
def test_the_loss_is_clipped_on_the_side_that_gains(moved, gain, policy):
    torch.manual_seed(2)
    model = ActorCritic(4, 2, 1, 8, normalise=False)
    batch = Minibatch(make_rollout(model, moved=moved), torch.full((4,), gain), 0.2)
    found = ppo_loss(model, batch, 0.5, 0.0, clip_values=False)
    assert float(found) == pytest.approx(policy + 0.5 * 0.5 * 1.0, rel=1e-5)
    entropy = model.distribution(batch.part.seen).entropy().mean()
    less = ppo_loss(model, batch, 0.5, 0.1, clip_values=False)
    assert float(found - less) == pytest.approx(0.1 * float(entropy), rel=1e-3)


def test_clipped_values_gain_nothing_by_going_far():
    model = ActorCritic(4, 2, 1, 8, normalise=False)
    part = make_rollout(model)
    far = Rollout(part.seen, part.actions, part.log_probs, part.values - 3, torch.ones(4) * 3)
    batch = Minibatch(far, torch.zeros(4), 0.2)
    # The values have moved to the returns, from 3 below; clipped, they have moved 0.2.
    assert float(ppo_loss(model, batch, 2.0, 0.0, clip_values=False)) == pytest.approx(0, abs=1e-5)
    assert float(ppo_loss(model, batch, 2.0, 0.0, clip_values=True)) == pytest.approx(2.8**2)


def test_moments_of_parts_are_those_of_the_whole():
    torch.manual_seed(4)
    values, returns = 3 + 2 * torch.randn(300, 5), 7 * torch.randn(300, 1)
    normaliser = Normaliser(5)
    assert torch.equal(normaliser.see(values[:2] * 0.1), values[:2] * 0.1)  # no statistics yet
    # the second part comes from two ranks, whose sums are added
    for part in (slice(0, 100), slice(100, 300)):
        ranks = [values[part][0::2], values[part][1::2]], [returns[part][0::2], returns[part][1::2]]
        sums = [sum(sums_of(rank) for rank in kind) for kind in ranks]
        normaliser.add(torch.cat(sums))
    seen = normaliser.see(values)
    assert torch.allclose(seen.mean(0), torch.zeros(5), atol=1e-5)
    assert torch.allclose(seen.std(0, correction=0), torch.ones(5), atol=1e-5)
    assert float(normaliser.scale(returns[:, 0]).std(correction=0)) == pytest.approx(1, abs=0.01)
    assert float(normaliser.see(values + 1000).max()) == 10.0


def test_minibatches_statistics():
    values = torch.rand(3, 50).double()
    mean, std = mean_and_std(sums_by_minibatch(values).view(2, -1), 50)
    assert torch.allclose(mean, values.mean(1)) and torch.allclose(std, values.std(1))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_minibatches_are_the_same_however_environments_are_dealt_out(ranks):
    """Sample (step, environment) is in the same minibatch for any number of ranks; an epoch uses each once."""
    together = [set() for _ in range(4)]
    for rank in range(ranks):
        numbers = range(rank * 6 // ranks, (rank + 1) * 6 // ranks)
        dealt = minibatches(5, 2, 1, 8, 6, 4, numbers)
        assert sorted(dealt.flatten().tolist()) == list(range(8 * len(numbers)))
        for minibatch, samples in enumerate(dealt.tolist()):
            own = {divmod(sample, len(numbers)) for sample in samples}
            together[minibatch] |= {(step, numbers[place]) for step, place in own}
    alone = minibatches(5, 2, 1, 8, 6, 4, range(6))
    assert together == [{divmod(sample, 6) for sample in row} for row in alone.tolist()]
    assert not torch.equal(alone, minibatches(5, 2, 0, 8, 6, 4, range(6)))


def test_noise_is_the_same_however_environments_are_dealt_out():
    shape = (5, 6, 2)
    whole = action_noise(1, 3, shape, uniform=True, numbers=range(6))
    assert torch.equal(whole[:, 4:], action_noise(1, 3, shape, uniform=True, numbers=range(4, 6)))
    assert not torch.equal(whole, action_noise(1, 4, shape, uniform=True, numbers=range(6)))


@pytest.mark.parametrize("name", KINDS)
def test_an_environment_does_the_same_whoever_has_it(name):
    whole, part = (
        named(name, range(4), 1),
        named(name, [2, 3], 1),
    )
    noise = actions_of(whole, 300)
    model = ActorCritic(whole.features, whole.actions, whole.action_size, 8, normalise=False)
    seen = [
        Collector(environments, 0.9, 0.9).collect(model, some)[0].seen
        for environments, some in ((whole, noise), (part, noise[:, 2:]))
    ]
    apart = [seen[0].view(300, 4, -1)[:, 2:], seen[1].view(300, 2, -1)]
    assert torch.allclose(*apart, atol=1e-4)
    # each environment has its own seed
    assert not torch.allclose(apart[0][:, 0], apart[0][:, 1], atol=1e-2)


@pytest.mark.parametrize("name", KINDS)
def test_environments_come_back_to_where_they_were(name):
    first, second = (
        named(name, range(3), 1),
        named(name, range(3), 1),
    )
    model = ActorCritic(first.features, first.actions, first.action_size, 8, normalise=False)
    noise = actions_of(first, 250)  # long enough for first and later episodes
    before, after = Collector(first, 0.9, 0.9), Collector(second, 0.9, 0.9)
    before.collect(model, noise)
    after.load_state(
        json.loads(json.dumps({**before.state(), "counts": None}))
        | {"counts": before.state()["counts"]}
    )
    one, other = (collector.collect(model, noise) for collector in (before, after))
    assert torch.equal(one[0].seen, other[0].seen)
    assert torch.equal(one[1], other[1])
    assert before.ended == after.ended


class LooksUp(gymnasium.Env):
    """An environment that looks its action up: a number can be a key, an array cannot."""

    observation_space = gymnasium.spaces.Box(-100, 100, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._seen(), {}

    def step(self, action):
        self.place += {0: -1, 1: 1}[action]
        return self._seen(), 0.0, False, False, {}

    def _seen(self):
        return torch.tensor([self.place], dtype=torch.float32).numpy()


def test_an_environment_gets_its_actions_again_as_it_got_them():
    first, second = (Environments(LooksUp, range(3), 1) for _ in range(2))
    model = ActorCritic(1, 2, 1, 8, normalise=False)
    noise = actions_of(first, 21)
    before, after = Collector(first, 0.9, 0.9), Collector(second, 0.9, 0.9)
    before.collect(model, noise)
    after.load_state(before.state())
    one, other = (collector.collect(model, noise)[0] for collector in (before, after))
    assert torch.equal(one.seen, other.seen)
    assert one.seen[:3].all()  # after an odd number of steps, none is where it began


def test_of_a_test_each_environment_plays_its_share():
    """Not the episodes that end first, because those are the short ones."""
    environments = named("CartPole-v1", range(4), 1)
    model = ActorCritic(4, 2, 1, 8, normalise=False)
    ended = play(model, environments, 10, torch.device("cpu"))
    assert len(ended) == 10
    assert all(gained == length for gained, length in ended)


@pytest.mark.parametrize(("steps", "lr"), [(1, "1"), (8, "0.05")])
def test_three_ranks_are_one_with_all_environments(run, steps, lr):
    """With ddp and advantages normalised together: the same experience, and the same steps up to rounding."""
    flags = (*SMALL, "--strategy", "ddp", "--task-set", "sync=all", "--task-set", "normalise=true")
    flags += ("--optimizer", "sgd", "--lr-schedule", "constant", "--clip-norm", "0")
    alone, three = (run(ranks, *flags, "--lr", lr, "--steps", str(steps)) for ranks in (1, 3))
    # With sgd and a learning rate of 1, the parameters have moved by the gradient.
    assert torch.allclose(alone.parameters[0], three.parameters[0], rtol=0, atol=1e-6)
    mine = [line["episodes"] for line in alone.of("rollout")]
    theirs = [[line["episodes"] for line in three.of("rollout", rank)] for rank in range(3)]
    assert mine == [sum(each) for each in zip(*theirs, strict=True)]
    assert alone.end["tested"] == three.end["tested"]


def test_noise_that_depends_on_the_state_is_what_its_distribution_says():
    torch.manual_seed(4)
    model = ActorCritic(3, 0, 2, 16, normalise=False, gsde=True)
    with torch.no_grad():
        model.log_std.uniform_(-2, 0)
    seen = torch.randn(5, 3)
    found = model.distribution(seen)
    many = 20_000
    noise = torch.randn(many * 5, model.noise_size)
    actions = model.act(seen.repeat(many, 1), noise).view(many, 5, 2)
    assert torch.allclose(actions.mean(0), found.mean, atol=0.05)
    assert torch.allclose(actions.std(0), found.stddev, rtol=0.05)
    # One matrix maps a state to its noise: the same for the same state, different for another.
    same = noise[:1].expand(2, -1)
    again = model.act(seen[[0, 0]], same)
    assert torch.equal(again[0], again[1])
    offsets = model.act(seen[:2], same) - model.best(seen[:2])
    assert not torch.allclose(offsets[0], offsets[1])


def test_noise_that_depends_on_the_state_lasts_for_some_steps_and_ranks_share_it(run):
    words = ("--task-set", "env=Pendulum-v1", "--strategy", "ddp", "--task-set", "sync=all")
    words += ("--task-set", "sde_sample_freq=3", "--task-set", "norm_adv=false")
    one, three = (run(ranks, *SMALL, *words, "--steps", "4") for ranks in (1, 3))
    for parameters in three.parameters:
        assert torch.allclose(parameters, one.parameters[0], atol=1e-5)


def test_noise_goes_as_far_at_first_as_it_is_told():
    torch.manual_seed(4)
    model = ActorCritic(3, 0, 2, 16, normalise=False, log_std=-2.0, activation="relu")
    seen = torch.randn(5, 3)
    assert torch.allclose(model.distribution(seen).stddev, torch.tensor(-2.0).exp().expand(5, 2))
    hidden = model.actor[1](model.actor[0](seen))
    assert float(hidden.min()) == 0.0 < float(hidden.max())


@pytest.mark.parametrize("env", WALKERS)
def test_mujocos_environments_are_learnt_in_by_several_ranks(run, env):
    words = ("--task-set", f"env={env}", "--strategy", "fedavg", "--set", "H=4")
    ranks = run(2, *SMALL, *words, "--task-set", "eval_episodes=3")
    assert torch.equal(*ranks.parameters)
    assert ranks.end["tested"]["test_length"] > 1


def test_choices_have_no_noise_that_depends_on_the_state():
    with pytest.raises(OptionError, match="gsde: the actions of CartPole-v1 are no numbers"):
        parse_config(["--task", "ppo", "--task-set", "gsde=true"], {})


def test_without_sync_ranks_normalise_by_their_own(run):
    flags = (*SMALL, "--strategy", "ddp", "--optimizer", "sgd", "--steps", "1", "--lr", "1")
    alone, three = (run(ranks, *flags).parameters[0] for ranks in (1, 3))
    assert not torch.allclose(alone, three, rtol=0, atol=1e-4)


@pytest.mark.parametrize("strategy", ["ddp", "fedavg", "diloco", "gossip", "demo"])
def test_any_strategy_goes_between_policies(run, strategy):
    ranks = run(3, *SMALL, "--strategy", strategy)
    assert torch.equal(ranks.parameters[0], ranks.parameters[2])
    assert ranks.end["sent_bytes"]["train"] > 0
    assert ranks.end["seconds"]["rollout"] > 0
    assert 8 <= ranks.end["tested"]["test_return"] <= 500


@pytest.mark.parametrize("at", ["6", "7"])
def test_it_goes_on_bit_for_bit_from_a_checkpoint(run, at):
    """From within one of three rollouts: the next one continues with the environments' restored states."""
    flags = (*SMALL, "--task-set", "total_timesteps=288", "--task-set", "normalise=true")
    flags += ("--strategy", "fedavg", "--set", "H=3")
    whole = run(2, *flags, "--checkpoint-every", at)
    rest = run(2, *flags, "--resume", str(whole.run_dir))
    assert torch.equal(whole.parameters[0], rest.parameters[0])
    assert rest.end["tested"] == whole.end["tested"]
    rollouts = [[line | {"time": 0} for line in ranks.of("rollout")] for ranks in (whole, rest)]
    assert [line["step"] for line in rollouts[0]] == [1, 5, 9]
    assert rollouts[1] == rollouts[0][2:]


@pytest.mark.parametrize("sync", ["needed", "none"])
def test_tests_after_the_training_see_the_world_by_the_statistics_of_their_step(run, sync):
    """The results equal those of tests during the training, as all ranks have the same parameters after each step."""
    flags = (*SMALL, "--task-set", "env=Pendulum-v1", "--task-set", "normalise=true")
    flags += ("--strategy", "ddp", "--task-set", f"sync={sync}", "--eval-every", "3")
    during, after = run(2, *flags), run(2, *flags, "--eval", "after")
    tests = [
        [(line["step"], line["test_return"]) for line in ranks.of("eval")]
        for ranks in (during, after)
    ]
    assert [step for step, _ in tests[0]] == [3, 6, 8]
    assert tests[0] == tests[1]
    assert torch.equal(during.buffers[0], after.buffers[0])
    stopped = run(2, *flags, "--eval", "after", "--checkpoint-every", "5")
    rest = run(2, *flags, "--eval", "after", "--resume", str(stopped.run_dir))
    assert [(line["step"], line["test_return"]) for line in rest.of("eval")] == tests[0]


def test_what_was_trained_plays_in_one_process(run):
    ranks = run(2, *SMALL, "--task-set", "normalise=true", "--seed", "4")
    model = ActorCritic(4, 2, 1, 64, normalise=True)
    model.load_state_dict(torch.load(ranks.run_dir / "model.pt"))
    environments = Environments(
        partial(gymnasium.make, "CartPole-v1"), range(20), 4 + 1_000_000_007
    )
    ended = play(model, environments, 20, torch.device("cpu"))
    assert ranks.end["tested"]["test_return"] == pytest.approx(sum(e[0] for e in ended) / 20)


def test_cart_pole_is_learnt_by_two_ranks_that_average_once_a_rollout(run):
    """With a fifth of the steps that mastering it takes."""
    flags = ("--task", "ppo", "--strategy", "fedavg", "--set", "H=20")
    ranks = run(2, *flags, "--task-set", "total_timesteps=20000", "--task-set", "eval_episodes=20")
    # a random policy has 22; measured: see docs/LOG.md
    assert ranks.end["tested"]["test_return"] > 100
    returns = [line["episode_return"] for line in ranks.of("rollout") if "episode_return" in line]
    assert sum(returns[-5:]) / 5 > 2 * sum(returns[:5]) / 5
