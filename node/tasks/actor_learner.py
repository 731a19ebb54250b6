"""The interface of a task in which one rank learns and the others act (`node.actor_learner` is its loop).

Rank 0 is the learner: it alone has the optimiser and the actors' experience. Every other rank is an actor process
that runs several environments. Ranks use no collectives: node/transport carries experience and weights.
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

SEEDS = 2**63  # how many there are: from 0, as numpy takes no negative ones
SETTLED_BY_LEARNER = "the learner: it alone has parameters to learn, and sends them to its actors"


@dataclass(frozen=True)
class ActorPart:
    """The share of all actors that one process runs.

    Attributes:
        numbers: numbers of its actors among those of all ranks, from 0: dealt out one by one, so that each process
            has low and high ones.
        actors: number of actors of all ranks together.
        seed: seed of their random draws, another for each process; in range(SEEDS).
    """

    numbers: range
    actors: int
    seed: int


class Actor(Protocol):
    """The actors of one process.

    Attributes:
        version: version of the weights that act; the loop sets it.
    """

    version: int

    @property
    def steps(self) -> int:
        """Steps made so far, of all environments together."""

    def step(self) -> "list[Experience]":
        """Make one step in every environment; return the pieces of experience that it completed."""

    def heed(self, advice: Mapping[str, object]) -> None:
        """Follow the advice that the learner sent with its weights."""


class Learner(Protocol):
    """The learning side of a task."""

    @property
    def is_ready(self) -> bool:
        """Whether there is enough experience to learn from."""

    @property
    def room(self) -> int:
        """How many more pieces it can take; further ones stay with the actors until an update makes room."""

    @property
    def updates_before(self) -> int:
        """How many updates are made before the one that can learn a piece added now."""

    @property
    def tested(self) -> "nn.Module":
        """The model that is tested and kept: the learnt one, or an average of what it was."""

    @property
    def steps_learnt(self) -> int:
        """Steps of experience that updates used; a step counts as often as it was used."""

    def check(self, experience: "Experience") -> None:
        """Check that a piece of experience, from any sender, belongs to this task.

        Raises:
            ValueError: it does not.
        """

    def add(self, experience: "Experience") -> None:
        """Take a piece of experience that passed `check`."""

    def update(self, update: int) -> float:
        """Make update number `update`, from 1; return the loss."""

    def advice(self) -> Mapping[str, object]:
        """Return what actors should know, as JSON values."""

    def state(self) -> dict[str, object]:
        """Return what a checkpoint must hold besides the model and the optimiser."""

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from what `state` returned."""


@dataclass
class ActorLearnerTask(AnyTask, ABC):
    """The options that all such tasks have."""

    actors: int = option(8, "actors per rank (none on rank 0), one environment each", at_least=1)
    pull_every: int = option(
        400,
        "steps of each environment between pulls of weights; 0: get each version as it comes",
        at_least=0,
    )
    broadcast: str = option(
        "star",
        "who sends weights: the learner to all; in a chain or a binary tree, actors pass them on",
        choices=BROADCASTS,
    )
    publish_every: int = option(5, "updates between versions of the weights", at_least=1)
    weights: str = option("f32", "encoding of weights; delta: lossless for bf16", choices=ENCODINGS)
    max_staleness: int = option(
        0,
        "updates by which a step's policy may be behind when it can be learnt; 0: any",
        at_least=0,
    )
    when_stale: str = option(
        "reject", "reject older experience, or let actors wait", choices=("reject", "pace")
    )
    window: int = option(16, "pieces of experience in flight before an actor waits", at_least=1)

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
        """Return pull_every=0 unless the broadcast is a star: weights that are passed on are not pulled."""
        return {"pull_every": 0} if settings.get("broadcast", "star") != "star" else {}

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Return the task's own defaults of flags of node.train.

        Raises:
            OptionError: there would be no actor, no experience new enough to learn from, or two ways for weights to
                arrive.
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
        """Return a new model, initialised from torch's global random generator."""

    @abstractmethod
    def make_actor(self, model: "nn.Module", part: ActorPart) -> Actor:
        """Return the actors of a process; they act by this model, whose parameters the loop changes."""

    @abstractmethod
    def make_learner(
        self,
        model: "nn.Module",
        optimizer: "Optimizer",
        batch_size: int,
        clip_norm: float,
        seed: int,
    ) -> Learner:
        """Return the learner of this model.

        An update is a step of the optimiser over `batch_size` samples, with gradients clipped to `clip_norm` (0:
        not); `seed` is in range(SEEDS).
        """

    @abstractmethod
    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Return figures on held-out instances. Called in eval mode, without gradients."""
