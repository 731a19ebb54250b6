"""IMPALA's learner: a short queue of the actors' experience, oldest first, each piece learnt once."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from node.rl.policy import ActorCritic
from node.rl.vtrace import vtrace
from node.transport.messages import ArraySpec, Experience, require_arrays

NAMES = ("obs", "actions", "log_probs", "rewards", "done")


@dataclass(frozen=True)
class ImpalaSettings:
    """The hyperparameters of the learner.

    Attributes:
        unroll: steps of a piece.
        actors: environments of a piece.
        queue: largest number of waiting pieces.
        gamma: discount.
        corrects: whether V-trace corrects for the age of policies; otherwise their actions count as the learner's
            own.
        rho_bar: see `vtrace`.
        c_bar: see `vtrace`.
        vf_coef: weight of half the critic's squared error.
        ent_coef: weight of the entropy of actions.
    """

    unroll: int
    actors: int
    queue: int
    gamma: float
    corrects: bool
    rho_bar: float
    c_bar: float
    vf_coef: float
    ent_coef: float


class ImpalaLearner:
    """IMPALA's learner: see `node.tasks.actor_learner.Learner`.

    Args:
        model: the model to train.
        optimizer: over its parameters.
        settings: hyperparameters.
        batch_size: pieces per update.
        clip_norm: largest norm of gradients; 0: no limit.
    """

    def __init__(
        self,
        model: ActorCritic,
        optimizer: Optimizer,
        settings: ImpalaSettings,
        *,
        batch_size: int,
        clip_norm: float,
    ) -> None:
        self._model, self._optimizer, self._settings = model, optimizer, settings
        self._batch_size, self._clip_norm = batch_size, clip_norm
        self._waiting: deque[Experience] = deque()
        self._steps_learnt = 0

    @property
    def is_ready(self) -> bool:
        """Whether a batch is waiting."""
        return len(self._waiting) >= self._batch_size

    @property
    def room(self) -> int:
        """How many more pieces may wait."""
        return max(self._settings.queue, self._batch_size) - len(self._waiting)

    @property
    def updates_before(self) -> int:
        """How many updates the pieces that wait are for."""
        return len(self._waiting) // self._batch_size

    @property
    def tested(self) -> ActorCritic:
        """The model that is learnt."""
        return self._model

    @property
    def steps_learnt(self) -> int:
        """Steps of all environments that updates used."""
        return self._steps_learnt

    def check(self, experience: Experience) -> None:
        """Check that a piece fits the numbers of steps and environments and has valid actions.

        Raises:
            ValueError: it does not.
        """
        model, settings = self._model, self._settings
        steps, shape = settings.unroll, (settings.unroll, settings.actors)
        features = model.actor[0].in_features
        spec: dict[str, ArraySpec] = {
            "obs": (np.float32, (steps + 1, settings.actors, features)),
            **dict.fromkeys(("log_probs", "rewards"), (np.float32, shape)),
            "done": (bool, shape),
        }
        outputs = model.actor[-1].out_features
        chooses = model.log_std is None
        spec["actions"] = (np.int64, shape) if chooses else (np.float32, (*shape, outputs))
        require_arrays(experience.arrays, spec)
        actions = experience.arrays["actions"]
        if chooses and not ((actions >= 0) & (actions < outputs)).all():
            raise ValueError("experience with actions that there are not")

    def add(self, experience: Experience) -> None:
        """Add a piece to the queue."""
        self._waiting.append(experience)

    def update(self, update: int) -> float:
        """Make one step of the optimiser with the oldest pieces; return the loss."""
        pieces = [self._waiting.popleft() for _ in range(self._batch_size)]
        batch = {
            name: torch.from_numpy(np.concatenate([one.arrays[name] for one in pieces], 1))
            for name in NAMES
        }
        self._steps_learnt += batch["rewards"].numel()
        device = next(self._model.parameters()).device
        loss = self._loss({name: value.to(device) for name, value in batch.items()})
        self._optimizer.zero_grad()
        loss.backward()
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        self._optimizer.step()
        return float(loss)

    def advice(self) -> Mapping[str, object]:
        """Return nothing: actors need no advice."""
        return {}

    def state(self) -> dict[str, object]:
        """Return nothing: the model and its optimiser are all that is kept."""
        return {}

    def load_state(self, state: dict[str, object]) -> None:
        """Do nothing: there is nothing to load."""
        return

    def _loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        settings, model = self._settings, self._model
        found = model.distribution(batch["obs"][:-1])
        log_probs = found.log_prob(batch["actions"])
        values = model.value(batch["obs"])
        ratios = log_probs - batch["log_probs"]
        learnt = vtrace(
            ratios.detach() if settings.corrects else torch.zeros_like(log_probs),
            batch["rewards"],
            settings.gamma * ~batch["done"],
            values[:-1].detach(),
            values[-1].detach(),
            rho_bar=settings.rho_bar,
            c_bar=settings.c_bar,
        )
        policy = -(learnt.advantages * log_probs).mean()
        errors = (learnt.targets - values[:-1]) ** 2
        entropy = found.entropy().mean()
        return policy + settings.vf_coef * 0.5 * errors.mean() - settings.ent_coef * entropy
