"""Tests of prioritised replay: the sum tree against plain sums, targets by hand, and the draws."""

import numpy as np
import pytest

from node.replay.buffer import ALPHA, BETA, Buffer, priority
from node.replay.episodes import Episode
from node.replay.sum_tree import SumTree
from node.replay.targets import n_step_targets


@pytest.mark.parametrize("size", [1, 2, 3, 8, 37])
def test_a_sum_tree_finds_what_plain_sums_find(size):
    random = np.random.default_rng(size)
    tree, plain = SumTree(size), np.zeros(size)
    for _ in range(30):
        leaves = random.integers(0, size, 5)
        weights = random.random(5) * (random.random(5) < 0.8)
        tree.set(leaves, weights)
        for leaf, weight in zip(leaves, weights, strict=True):
            plain[leaf] = weight
        assert tree.total == pytest.approx(plain.sum())
        assert np.array_equal(tree.weights(np.arange(size)), plain)
        if plain.sum() > 0:
            places = random.random(50) * plain.sum()
            expected = np.searchsorted(plain.cumsum(), places, side="right")
            assert np.array_equal(tree.find(places), expected)


def test_leaves_are_drawn_in_proportion_to_their_weights():
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([0.0, 1.0, 2.0, 0.0, 5.0]))
    random = np.random.default_rng(1)
    drawn = np.concatenate([tree.draw(8, random) for _ in range(500)])
    shares = np.bincount(drawn, minlength=5) / len(drawn)
    assert shares == pytest.approx([0, 1 / 8, 2 / 8, 0, 5 / 8], abs=0.01)


def test_at_the_very_end_nothing_without_weight_is_drawn():
    tree = SumTree(4)
    tree.set(np.arange(4), np.array([1.0, 2.0, 0.0, 0.0]))
    assert tree.find(np.array([0.0, 1.0, 2.999, 3.0, 3.1])).tolist() == [0, 1, 1, 1, 1]


def test_errors_as_large_as_they_can_be_leave_draws_and_weights_finite():
    largest = np.full(10, np.finfo(np.float32).max, np.float32)
    buffer = Buffer(4, 10, 5, seed=1)
    buffer.add(episode(10, np.ones(10, np.float32)))
    buffer.add(episode(10, largest))
    drawn = buffer.draw(4)
    assert np.isfinite(drawn.weights).all() and drawn.weights.max() == 1
    buffer.update(drawn, [np.ones(5)] * 4)
    assert np.isfinite(buffer.draw(4).weights).all()


def test_targets_by_hand():
    rewards, values = np.array([1.0, 2.0, 4.0]), np.array([0.0, 10.0, 20.0, 30.0])
    found = n_step_targets(rewards, values, 2, 0.5, ended=False)
    # 1 + .5 * 2 + .25 * 20;  2 + .5 * 4 + .25 * 30;  4 + .5 * 30
    assert found.tolist() == [7.0, 11.5, 19.0]
    assert n_step_targets(rewards, values, 2, 0.5, ended=True).tolist() == [7.0, 4.0, 4.0]
    assert n_step_targets(rewards, values, 1, 0.5, ended=True).tolist() == [6.0, 12.0, 4.0]
    assert n_step_targets(rewards, values, 9, 0.5, ended=True).tolist() == [3.0, 4.0, 4.0]


def episode(length, errors=None, agents=2, version=0):
    return Episode(
        obs=np.zeros((length + 1, agents, 6, 9, 9), bool),
        hears=np.ones((length + 1, agents, agents), bool),
        hidden=np.zeros((length, agents, 8), np.float16),
        actions=np.zeros((length, agents), np.int8),
        rewards=np.zeros((length, agents), np.float32),
        errors=np.ones(length, np.float32) if errors is None else np.array(errors, np.float32),
        ended=np.array(True),
        version=np.full(length, version),
        made_at_s=np.zeros(length),
    )


def test_an_episode_is_cut_into_sequences_that_are_drawn_by_their_errors():
    buffer = Buffer(capacity=4, most_steps=12, sequence=5, seed=1)
    buffer.add(episode(12, errors=[0] * 5 + [1] * 5 + [9] * 2))
    assert (len(buffer), buffer.steps) == (1, 12)
    draw = buffer.draw(300)
    assert set(zip(draw.begins.tolist(), draw.ends.tolist(), strict=True)) >= {(5, 10), (10, 12)}
    expected = np.array([priority(np.array(e)) for e in ([0.0] * 5, [1.0] * 5, [9.0] * 2)])
    found = np.bincount(draw.begins // 5, minlength=3) / 300
    assert found == pytest.approx(expected / expected.sum(), abs=0.01)
    # A sample that is drawn more often has less weight: (number * probability) ** -beta.
    rare, often = (draw.weights[draw.begins == begin][0] for begin in (5, 10))
    assert often / rare == pytest.approx((expected[2] / expected[1]) ** -BETA)
    assert draw.weights.max() == 1


def test_priorities_follow_what_is_learnt():
    buffer = Buffer(capacity=2, most_steps=4, sequence=2, seed=1)
    buffer.add(episode(4))
    draw = buffer.draw(8)
    buffer.update(draw, [np.array([100.0 if begin else 0.0]) for begin in draw.begins])
    assert set(buffer.draw(20).begins.tolist()) == {2}
    assert priority(np.array([3.0, -1.0])) == pytest.approx((0.9 * 3 + 0.1 * 2) ** ALPHA)


def test_the_oldest_episode_goes_and_news_of_it_is_no_news():
    buffer = Buffer(capacity=2, most_steps=4, sequence=4, seed=1)
    first, second, third = (episode(length, version=length) for length in (2, 3, 4))
    for one in (first, second):
        buffer.add(one)
    draw = buffer.draw(50)
    assert {e.length for e in draw.episodes} == {2, 3}
    buffer.add(third)
    assert (len(buffer), buffer.steps) == (2, 7)
    buffer.update(draw, [np.array([1e3])] * 50)  # also of the first episode, which is gone
    shares = [e.length for e in buffer.draw(1000).episodes]
    assert set(shares) == {3, 4} and shares.count(3) > 950


def test_what_would_spoil_all_draws_is_refused_and_changes_nothing():
    buffer = Buffer(capacity=2, most_steps=4, sequence=2, seed=1)
    with pytest.raises(ValueError, match="no episode has been added"):
        buffer.draw(3)
    for bad in (episode(5), episode(2, errors=[1, np.nan]), episode(0, errors=[])):
        with pytest.raises(ValueError, match="steps|no number"):
            buffer.add(bad)
    assert (len(buffer), buffer.steps) == (0, 0)
    buffer.add(episode(4))
    draw = buffer.draw(1)
    with pytest.raises(ValueError, match="diverges"):
        buffer.update(draw, [np.array([np.inf])])
    assert buffer.draw(4).begins.tolist() == [0, 0, 2, 2]
