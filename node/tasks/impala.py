"""IMPALA (Espeholt et al., 2018, arXiv 1802.01561): an actor-critic whose actors are on other ranks.

Environments are gymnasium's. Actors hand over a fixed number of steps at a time; the learner uses each piece once,
oldest first, and V-trace corrects for the age of the policies that acted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from node.base.options import Value, option
from node.rl.presets import PRESETS
from node.tasks.actor_learner import Actor, ActorLearnerTask, ActorPart, Learner
from node.tasks.gymnasium_task import GymnasiumTask

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    from node.rl.policy import ActorCritic


@dataclass
class Impala(GymnasiumTask, ActorLearnerTask):
    """An actor-critic with V-trace: rank 0 learns, the others act; a step is an update of the learner."""

    env: str = option("CartPole-v1", "environment", choices=tuple(PRESETS))
    pull_every: int = option(
        20,
        "steps of each environment between pulls of weights; 0: get each version as it comes",
        at_least=0,
    )
    publish_every: int = option(1, "updates between versions of the weights", at_least=1)
    unroll: int = option(20, "steps of each environment in a piece of experience", at_least=1)
    queue: int = option(4, "pieces queued at the learner; more stay with actors", at_least=1)
    gamma: float = option(0.99, "discount factor", at_least=0.0, at_most=1.0)
    correction: str = option(
        "vtrace",
        "correction for older policies; none: treat their actions as the learner's",
        choices=("vtrace", "none"),
    )
    rho_bar: float = option(1.0, "V-trace: largest importance ratio", above=0.0)
    c_bar: float = option(1.0, "V-trace: largest trace coefficient", above=0.0)
    vf_coef: float = option(0.5, "weight of the critic's error", at_least=0.0)
    ent_coef: float = option(0.01, "weight of the entropy", at_least=0.0)
    hidden: int = option(64, "units of each hidden layer", at_least=1)
    eval_episodes: int = option(100, "episodes per test, with the likeliest actions", at_least=1)

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Return the task's own defaults of flags of node.train; a batch consists of pieces of experience.

        Raises:
            OptionError: see ActorLearnerTask.
        """
        own = {"steps": 1500, "batch_size": 2, "lr": 1e-3, "clip_norm": 0.5}
        return {**super().flag_defaults(world_size), **own}

    def make_model(self) -> "ActorCritic":
        """Return an `ActorCritic`."""
        from node.rl.environments import Environments
        from node.rl.policy import ActorCritic

        one = Environments(self.make_environment, [0], 0)
        shape = one.features, one.actions, one.action_size
        one.close()
        return ActorCritic(*shape, self.hidden, normalise=False)

    def make_actor(self, model: "ActorCritic", part: ActorPart) -> Actor:
        """Return an actor with the environments of this process."""
        from node.rl.environments import Environments
        from node.rl.unrolls import UnrollActor

        environments = Environments(self.make_environment, part.numbers, part.seed)
        return UnrollActor(model, environments, self.unroll, self.gamma, part.seed)

    def make_learner(
        self,
        model: "ActorCritic",
        optimizer: "Optimizer",
        batch_size: int,
        clip_norm: float,
        seed: int,
    ) -> Learner:
        """Return IMPALA's learner."""
        from node.rl.impala_learner import ImpalaLearner, ImpalaSettings

        own = asdict(self) | {"corrects": self.correction == "vtrace"}
        settings = ImpalaSettings(**{f.name: own[f.name] for f in fields(ImpalaSettings)})
        return ImpalaLearner(model, optimizer, settings, batch_size=batch_size, clip_norm=clip_norm)

    def evaluate(self, model: "ActorCritic", device: "torch.device") -> dict[str, float]:
        """Return `test_return` and `test_length`, as ppo does."""
        from node.rl.play import evaluate

        return evaluate(model, self.make_environment, self.eval_episodes, 0, device)
