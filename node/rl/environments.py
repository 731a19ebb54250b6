"""This rank's environments: gymnasium's, stepped together, each with its own seed.

Environment number e of all draws from the run's seed and e, on any rank: how environments are dealt out does not
change what they do.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from node.base.options import OptionError

SEEDS_APART = 1_000_003


class Step(NamedTuple):
    """The result of a step of n environments. An environment whose episode ended has already begun the next one.

    Attributes:
        obs: observations to act on next, float32, shape (n, features).
        rewards: float32, shape (n,).
        terminated: whether the episode ended by itself, bool, shape (n,).
        truncated: whether the episode reached its time limit, bool, shape (n,).
        last_obs: the observation after the step in the same episode, also if that ended, float32, shape (n,
            features).
    """

    obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last_obs: np.ndarray


class Environments:
    """Several environments of one kind.

    Args:
        make: makes one of them.
        numbers: numbers of these among all environments.
        seed: the run's.

    Attributes:
        features: size of an observation.
        actions: number of discrete actions; 0 if actions are continuous.
        action_size: size of an action.

    Raises:
        OptionError: the environment has a kind of actions or observations that no policy here supports.
    """

    def __init__(
        self, make: Callable[[], gymnasium.Env], numbers: Sequence[int], seed: int
    ) -> None:
        self._episodes = [Episode(make()) for _ in numbers]
        _require_support(self._episodes[0])
        self._vector = SyncVectorEnv(
            [lambda env=env: env for env in self._episodes],
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        space = self._episodes[0].action_space
        self.features = int(np.prod(self._episodes[0].observation_space.shape or ()))
        self.actions = int(space.n) if isinstance(space, Discrete) else 0
        self.action_size = 1 if self.actions else int(np.prod(space.shape or ()))
        self._seeds = [(seed % 2**63) * SEEDS_APART + number for number in numbers]

    def reset(self) -> np.ndarray:
        """Begin all episodes; return the first observations, float32, shape (n, features)."""
        obs, _ = self._vector.reset(seed=self._seeds)
        return self._flat(obs)

    def step(self, actions: np.ndarray) -> Step:
        """Act by integers, shape (n,), or by floats, shape (n, action_size), clipped to the allowed range."""
        if not self.actions:
            space = self._vector.action_space
            actions = np.clip(actions.reshape(space.shape), space.low, space.high)
        obs, rewards, terminated, truncated, infos = self._vector.step(actions)
        obs = self._flat(obs)
        last_obs = obs.copy()
        for n in np.flatnonzero(terminated | truncated):
            last_obs[n] = np.asarray(infos["final_obs"][n], np.float32).reshape(-1)
        return Step(obs, rewards.astype(np.float32), terminated, truncated, last_obs)

    def state(self) -> str:
        """Return the state of all environments, as JSON."""
        return json.dumps([episode.state() for episode in self._episodes])

    def load_state(self, text: str) -> np.ndarray:
        """Restore all environments from what `state` returned; return the observations to act on next."""
        self._vector.reset(seed=self._seeds)
        states = json.loads(text)
        obs = [one.replay(state) for one, state in zip(self._episodes, states, strict=True)]
        return self._flat(np.stack(obs))

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()

    @staticmethod
    def _flat(obs: np.ndarray) -> np.ndarray:
        return np.asarray(obs, np.float32).reshape(len(obs), -1)


class EpisodeState(TypedDict, total=False):
    """How an episode began (one of the first two keys), and its actions since."""

    seed: int
    random: dict[str, object]
    """State of the environment's random generator."""
    actions: list[object]
    """As JSON values."""


class Episode(gymnasium.Wrapper):
    """An environment that records how its episode began and its actions since: enough to restore it."""

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401
        """Begin an episode."""
        self._begin: EpisodeState = (
            {"seed": seed} if seed is not None else {"random": self._random_state()}
        )
        self._actions: list[object] = []
        return super().reset(seed=seed, options=dict(options) if options else None)

    def step(self, action: Any) -> Any:  # noqa: ANN401
        """Act."""
        self._actions.append(np.asarray(action).tolist())
        return super().step(action)

    def state(self) -> EpisodeState:
        """Return the input of `replay`, as JSON values."""
        return {**self._begin, "actions": self._actions}

    def replay(self, state: EpisodeState) -> np.ndarray:
        """Begin the same episode and repeat its actions; return the observation to act on next."""
        if "random" in state:
            self.unwrapped.np_random.bit_generator.state = state["random"]
        obs, _ = self.reset(seed=state.get("seed"))
        kind = self.action_space.dtype
        for action in state["actions"]:
            # [()]: a discrete action is a number, as SyncVectorEnv hands it, and no array, which cannot be looked up.
            obs, *_ = self.step(np.asarray(action, kind)[()])
        return np.asarray(obs)

    def _random_state(self) -> Any:  # noqa: ANN401
        return self.unwrapped.np_random.bit_generator.state


def _require_support(env: gymnasium.Env) -> None:
    """Raise OptionError if no policy here can see or act in this environment."""
    name = type(env.unwrapped).__name__
    space = env.action_space
    is_discrete = isinstance(space, Discrete) and space.start == 0
    if not is_discrete and not (isinstance(space, Box) and space.dtype.kind == "f"):
        raise OptionError(f"{name}: actions are {space}, not Discrete from 0, or a Box of floats")
    if not isinstance(env.observation_space, Box):
        raise OptionError(
            f"{name}: observations are {env.observation_space}, not Box: wrap it in"
            " gymnasium.wrappers.FlattenObservation"
        )
