"""DHC's learner: a prioritised replay of the actors' episodes, and updates of the network from it."""

import copy
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from node.mapf.curriculum import Curriculum, Goal
from node.mapf.learning import td_loss
from node.mapf.network import ACTIONS, Network
from node.mapf.observation import PLANES, RADIUS
from node.mapf.settings import LearningSettings
from node.replay.buffer import Buffer
from node.replay.episodes import Episode
from node.transport.messages import Experience, Spec, require_arrays


class MapfLearner:
    """See `node.tasks.actor_learner.Learner`.

    Args:
        network: the network that is learnt.
        optimizer: optimiser of its parameters.
        settings: settings of the learner.
        goal: goal of the curriculum.
        batch_size: sequences per update.
        clip_norm: largest gradient norm; 0: unlimited.
        seed: seed of the draws from the replay, not negative.
    """

    def __init__(
        self,
        network: Network,
        optimizer: Optimizer,
        settings: LearningSettings,
        goal: Goal,
        *,
        batch_size: int,
        clip_norm: float,
        seed: int,
    ) -> None:
        self._network, self._optimizer, self._settings = network, optimizer, settings
        self._target = copy.deepcopy(network)
        self._average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.average))
        self._batch_size, self._clip_norm = batch_size, clip_norm
        self._was_ready, self._episodes = False, 0
        self._buffer = Buffer(settings.capacity, settings.most_steps, settings.sequence, seed)
        self._curriculum = Curriculum(goal)
        self._steps_learnt = 0

    @property
    def is_ready(self) -> bool:
        """Whether, at any time so far, the replay had `learn_after` steps or `capacity` episodes had arrived."""
        buffer, settings = self._buffer, self._settings
        self._was_ready |= (
            buffer.steps >= settings.learn_after or self._episodes >= settings.capacity
        )
        return self._was_ready

    @property
    def room(self) -> int:
        """The capacity: there is always room, because the oldest episode is dropped."""
        return self._settings.capacity

    @property
    def updates_before(self) -> int:
        """0: the next update may already draw the episode."""
        return 0

    @property
    def tested(self) -> Network:
        """The average of the network after each update: its policy changes less from one update to the next."""
        average: Network = self._average.module
        return average

    @property
    def steps_learnt(self) -> int:
        """Number of steps of all sequences that were learnt."""
        return self._steps_learnt

    def check(self, experience: Experience) -> None:
        """Check that this is an episode of an open setting.

        Raises:
            ValueError: it is not.
        """
        figures, arrays = experience.figures, experience.arrays
        agents, size = int(figures.get("agents", 0)), int(figures.get("size", 0))
        if (agents, size) not in self._curriculum.settings:
            raise ValueError(f"an episode of {agents} agents on {size} rows")
        steps = experience.steps
        if not 0 < steps <= self._settings.most_steps:
            raise ValueError(f"an episode of {steps} steps")
        require_arrays(arrays, episode_spec(steps, agents, self._network.size.hidden))
        if not ((arrays["actions"] >= 0) & (arrays["actions"] < ACTIONS)).all():
            raise ValueError("an episode with actions that there are not")

    def add(self, experience: Experience) -> None:
        """Keep an episode and, if it `decides`, count it for the curriculum."""
        figures = experience.figures
        self._buffer.add(Episode.of(experience.arrays))
        self._episodes += 1
        if figures.get("decides"):
            setting = int(figures["agents"]), int(figures["size"])
            self._curriculum.add(setting, bool(figures.get("solved")))

    def update(self, update: int) -> float:
        """Make one step of the optimiser; return the loss."""
        settings = self._settings
        draw = self._buffer.draw(self._batch_size)
        learnt = td_loss(
            self._network,
            self._target,
            draw,
            burn_in=settings.burn_in,
            n_steps=settings.n_steps,
            gamma=settings.gamma,
            first_agent_only=not settings.all_agents,
        )
        self._optimizer.zero_grad()
        learnt.loss.backward()
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._clip_norm)
        self._optimizer.step()
        self._average.update_parameters(self._network)
        self._buffer.update(draw, learnt.errors)
        self._steps_learnt += int(np.sum(draw.ends - draw.begins))
        if update % settings.target_every == 0:
            self._target.load_state_dict(self._network.state_dict())
        return float(learnt.loss)

    def advice(self) -> dict[str, object]:
        """Return the settings from which actors draw."""
        return {"settings": self._curriculum.settings}

    def state(self) -> dict[str, object]:
        """Return the target network, the average and the open settings, but not the replay."""
        settings = [list(setting) for setting in self._curriculum.settings]
        return {
            "target": self._target.state_dict(),
            "average": self._average.state_dict(),
            "settings": settings,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._target.load_state_dict(state["target"])
        self._average.load_state_dict(state["average"])
        for agents, size in state["settings"]:
            self._curriculum.open((agents, size))


def episode_spec(steps: int, agents: int, hidden: int) -> Spec:
    """Return types and shapes of the arrays of an episode: see `Episode`."""
    width, moments = 2 * RADIUS + 1, steps + 1
    return {
        "obs": (bool, (moments, agents, PLANES, width, width)),
        "hears": (bool, (moments, agents, agents)),
        "hidden": (np.float16, (steps, agents, hidden)),
        "actions": (np.int8, (steps, agents)),
        "rewards": (np.float32, (steps, agents)),
        "errors": (np.float32, (steps,)),
        "ended": (bool, ()),
    }
