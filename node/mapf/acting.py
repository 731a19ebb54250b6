"""Acts in several environments at once, and returns each episode when it has ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from node.mapf.curriculum import Setting
from node.mapf.environment import Environment
from node.mapf.network import ACTIONS, Network
from node.mapf.world import Instance
from node.replay.episodes import Episode
from node.replay.targets import n_step_targets

# Ape-X (Horgan et al., 2018): actor i of n explores with .4 ^ (1 + 7 i / (n - 1))
EPSILON, EPSILON_POWER = 0.4, 7.0


@dataclass(frozen=True)
class Finished:
    """An episode that has ended.

    Attributes:
        episode: the data for a learner.
        setting: number of agents, and size of the map.
        solved: whether all agents reached their goals in time.
        epsilon: probability with which its actor acted at random.
    """

    episode: Episode
    setting: Setting
    solved: bool
    epsilon: float


@dataclass
class Recording:
    """The record of an episode in progress: see `Episode`."""

    environment: Environment
    setting: Setting
    explorer: (
        int  # the agent that acts at random: with two, one learns that the other does not give way
    )
    obs: list[np.ndarray] = field(default_factory=list)
    hears: list[np.ndarray] = field(default_factory=list)
    hidden: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)  # of all actions
    version: list[int] = field(default_factory=list)
    made_at_s: list[float] = field(default_factory=list)


class Actors:
    """The actors of one process: each has its own environment, all share one network.

    Args:
        network: chooses actions; code that changes its weights must also set `version`.
        draw: draws the setting and the instance of a new episode.
        epsilons: probability of a random action, per actor.
        any_explores: whether the agent that acts at random is drawn for each episode, or is the first, as in DHC.
        first_agent_only: whether only the first agent's values are learnt; then its errors alone set first priorities.
        n_steps: steps of the n-step targets for first priorities.
        gamma: discount.
        most_steps: step limit of an episode.
        comm_loss: share of the agents' messages that are lost on purpose.
        seed: seed of all random draws.

    Attributes:
        version: version of the network's weights.
        steps: steps made so far, of all environments together.
    """

    def __init__(
        self,
        network: Network,
        draw: Callable[[np.random.Generator], tuple[Setting, Instance]],
        epsilons: Sequence[float],
        *,
        any_explores: bool,
        first_agent_only: bool,
        n_steps: int,
        gamma: float,
        most_steps: int,
        comm_loss: float = 0.0,
        seed: int,
    ) -> None:
        self._network = network
        self._draw = draw
        self._epsilons = epsilons
        self._any_explores, self._first_agent_only = any_explores, first_agent_only
        self._n_steps, self._gamma, self._most_steps = n_steps, gamma, most_steps
        self._comm_loss = comm_loss
        self._random = np.random.default_rng(seed)
        self.version = 0
        self.steps = 0
        self._hidden: list[np.ndarray] = []
        self._recordings = [self._begin() for _ in epsilons]
        self._hidden = [self._forget(recording) for recording in self._recordings]

    @torch.no_grad()
    def step(self) -> list[Finished]:
        """Make one step in every environment; return the episodes that ended, which new ones have replaced."""
        obs, hears, hidden = self._batch()
        memory = self._network.step(obs, hidden, hears)
        values = self._network.values(memory).numpy()
        finished = []
        for n, recording in enumerate(self._recordings):
            agents = recording.setting[0]
            over = self._act(n, values[n, :agents], memory[n, :agents].numpy())
            if over is not None:
                finished.append(over)
        self.steps += len(self._recordings)
        return finished

    def _begin(self) -> Recording:
        setting, instance = self._draw(self._random)
        explorer = int(self._random.integers(setting[0])) if self._any_explores else 0
        recording = Recording(Environment(instance, self._most_steps), setting, explorer)
        obs, hears = recording.environment.observe()
        recording.obs.append(obs)
        recording.hears.append(lose(self._random, hears, self._comm_loss))
        return recording

    def _forget(self, recording: Recording) -> np.ndarray:
        return np.zeros((recording.setting[0], self._network.size.hidden), np.float32)

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return all environments as one batch, padded to the same number of agents; padding hears only itself."""
        most = max(recording.setting[0] for recording in self._recordings)
        obs = pad([recording.obs[-1] for recording in self._recordings], most)
        hears = pad_hears([recording.hears[-1] for recording in self._recordings], most)
        hidden = pad(self._hidden, most)
        return torch.from_numpy(obs).float(), torch.from_numpy(hears), torch.from_numpy(hidden)

    def _act(self, n: int, values: np.ndarray, memory: np.ndarray) -> Finished | None:
        recording = self._recordings[n]
        actions = self._choose(values, recording.explorer, self._epsilons[n])
        outcome = recording.environment.step(actions)
        recording.hidden.append(self._hidden[n].astype(np.float16))
        recording.actions.append(actions)
        recording.rewards.append(outcome.rewards)
        recording.values.append(values)
        recording.version.append(self.version)
        recording.made_at_s.append(time.time())
        recording.obs.append(outcome.obs)
        recording.hears.append(lose(self._random, outcome.hears, self._comm_loss))
        self._hidden[n] = memory
        if not (outcome.done or outcome.truncated):
            return None
        self._recordings[n] = self._begin()
        self._hidden[n] = self._forget(self._recordings[n])
        episode = self._episode(recording, ended=outcome.done)
        return Finished(episode, recording.setting, outcome.done, self._epsilons[n])

    def _choose(self, values: np.ndarray, explorer: int, epsilon: float) -> np.ndarray:
        actions: np.ndarray = values.argmax(-1)
        if self._random.random() < epsilon:
            actions[explorer] = self._random.integers(ACTIONS)
        return actions

    def _episode(self, recording: Recording, *, ended: bool) -> Episode:
        actions, rewards = np.stack(recording.actions), np.stack(recording.rewards)
        values = np.stack(recording.values)
        taken = np.take_along_axis(values, actions[..., None], -1)[..., 0]
        # The network was not evaluated at the last moment: use the value of the moment before.
        best = np.concatenate([values.max(-1), values[-1:].max(-1)])
        targets = n_step_targets(rewards, best, self._n_steps, self._gamma, ended=ended)
        learnt = slice(1) if self._first_agent_only else slice(None)
        return Episode(
            obs=np.stack(recording.obs),
            hears=np.stack(recording.hears),
            hidden=np.stack(recording.hidden),
            actions=actions.astype(np.int8),
            rewards=rewards,
            errors=np.abs(targets - taken)[:, learnt].mean(1).astype(np.float32),
            ended=np.array(ended),
            version=np.array(recording.version),
            made_at_s=np.array(recording.made_at_s),
        )


def exploration(number: int, actors: int) -> float:
    """Return the probability with which actor `number` acts at random: from .4 down to .4 ^ 8."""
    share = number / (actors - 1) if actors > 1 else 0.0
    return float(EPSILON ** (1 + EPSILON_POWER * share))


def lose(random: np.random.Generator, hears: np.ndarray, share: float) -> np.ndarray:
    """Return `hears`, (…, agents, agents), with each message lost with probability `share`, except an agent's own."""
    if not share:
        return hears
    own = np.eye(hears.shape[-1], dtype=bool)
    return hears & (own | (random.random(hears.shape) >= share))


def pad(arrays: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Stack arrays of shape (agents, …) to shape (number, most, …), padded with zeros."""
    padded = np.zeros((len(arrays), most, *arrays[0].shape[1:]), arrays[0].dtype)
    for n, array in enumerate(arrays):
        padded[n, : len(array)] = array
    return padded


def pad_hears(masks: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Stack masks of shape (agents, agents) to shape (number, most, most); missing agents hear only themselves."""
    padded = np.broadcast_to(np.eye(most, dtype=bool), (len(masks), most, most)).copy()
    for n, mask in enumerate(masks):
        padded[n, : len(mask), : len(mask)] = mask
    return padded
