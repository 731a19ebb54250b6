"""The interface of a task that one rank learns and the others act in (`node.actor_learner` is its loop).

Rank 0 is the learner: it alone has the optimiser and what actors did. Every other rank is an actor process, in which
several environments run. Ranks exchange no collectives: node/transport carries experience and weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from node.base.options import OptionError, Value, option
from node.tasks.base import AnyTask
from node.transport import BROADCASTS, ENCODINGS

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

    from node.transport.messages import Experience

SETTLED_BY_LEARNER = "the learner: it alone has parameters to learn, and sends them to its actors"


@dataclass(frozen=True)
class ActorPart:
    """Which actors a process has.

    Attributes:
        numbers: of its actors, among those of all ranks, from 0.
        actors: of all ranks together.
        seed: of what they do at random, another for each process.
    """

    numbers: range
    actors: int
    seed: int


class Actor(Protocol):
    """The actors of one process.

    Attributes:
        version: of the weights that act; the loop sets it.
    """

    version: int

    @property
    def steps(self) -> int:
        """Made so far, of all environments together."""

    def step(self) -> "list[Experience]":
        """One step of every environment; the pieces of experience that it ended."""

    def heed(self, advice: Mapping[str, object]) -> None:
        """Follow what the learner said along with its weights."""


class Learner(Protocol):
    """What learns."""

    @property
    def is_ready(self) -> bool:
        """Whether there is enough to learn from."""

    @property
    def room(self) -> int:
        """How many more pieces it can take; the others stay with the actors until something was learnt."""

    @property
    def steps_learnt(self) -> int:
        """Steps of experience that updates have gone through, each as often as it was."""

    def check(self, experience: "Experience") -> None:
        """See that a piece of experience is one of this task's, whoever sent it.

        Raises:
            ValueError: it is not.
        """

    def add(self, experience: "Experience") -> None:
        """Take a piece of experience that `check` let pass."""

    def update(self, update: int) -> float:
        """Make update number `update`, 1 for the first; returns the loss."""

    def advice(self) -> Mapping[str, object]:
        """What actors should know, JSON values."""

    def state(self) -> dict[str, object]:
        """What a checkpoint must hold beside the model and the optimiser."""

    def load_state(self, state: dict[str, object]) -> None:
        """Go on from what `state` gave."""


@dataclass
class ActorLearnerTask(AnyTask, ABC):
    """Options that all such tasks have."""

    actors: int = option(8, "of each rank but the first, an environment each", at_least=1)
    pull_every: int = option(
        400,
        "steps of each environment between pulls of weights; 0: each version as it comes",
        at_least=0,
    )
    broadcast: str = option(
        "star",
        "who sends weights: the learner to all; in a chain or a tree of two children actors pass them on",
        choices=BROADCASTS,
    )
    publish_every: int = option(5, "updates between versions of the weights", at_least=1)
    weights: str = option("f32", "how weights are sent; delta: lossless of bf16", choices=ENCODINGS)
    max_staleness: int = option(
        0, "updates that the policy of a step may be behind; 0: any", at_least=0
    )
    when_stale: str = option(
        "reject", "older experience is rejected, or actors wait", choices=("reject", "pace")
    )
    window: int = option(16, "pieces of experience under way before an actor waits", at_least=1)

    settled: ClassVar[Mapping[str, str]] = {
        "strategy": SETTLED_BY_LEARNER,
        "accumulate": "batch_size",
        "shard": "who acts",
        "autocast": "actors, which act without",
        "eval": "the learner, which tests by itself",
    }
    essential_ranks: ClassVar[tuple[int, ...] | None] = (0,)

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """What is passed on is not asked for."""
        return {"pull_every": 0} if settings.get("broadcast", "star") != "star" else {}

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Flags of node.train.

        Raises:
            OptionError: there would be no actor, nothing new enough to learn, or two ways for weights to come.
        """
        if world_size < 2:
            raise OptionError(
                "no actors: rank 0 learns and the other ranks act, so this task wants 2 ranks or more"
            )
        if 0 < self.max_staleness < self.publish_every:
            raise OptionError(
                f"max_staleness={self.max_staleness} is less than publish_every={self.publish_every}: between two"
                " versions nothing would be new enough"
            )
        if self.pull_every and self.broadcast != "star":
            raise OptionError(
                f"pull_every={self.pull_every}: in a {self.broadcast} weights are passed on as they come, pull_every=0"
            )
        return {"strategy": "none", "weight_decay": 0.0}

    @abstractmethod
    def make_model(self) -> "nn.Module":
        """A new model, initialised from torch's global random generator."""

    @abstractmethod
    def make_actor(self, model: "nn.Module", part: ActorPart) -> Actor:
        """The actors of a process: they act by this model, whose parameters the loop changes."""

    @abstractmethod
    def make_learner(
        self,
        model: "nn.Module",
        optimizer: "Optimizer",
        batch_size: int,
        clip_norm: float,
        seed: int,
    ) -> Learner:
        """What learns this model, by steps of the optimiser over so many samples; gradients are clipped (0: not)."""

    @abstractmethod
    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Figures on held-out instances. Called in eval mode, no gradients."""
