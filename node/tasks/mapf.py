"""Multi-agent path finding by DHC (Ma, Luo and Ma, 2021, arXiv 2106.11365): actor-learner, recurrent deep Q-learning.

Each actor has a map on which several agents find their ways at the same time; an agent sees what is near it and sends
messages to agents that are near. The learner has the prioritised replay of all episodes. Harder maps open once easier
ones are mastered. `preset=full` has DHC's sizes; docs/rl.md says what it does otherwise. `small` learns two agents on
10 × 10 cells on two processors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from node.base.options import OptionError, Value, check_bounds, option, parse_value, unknown
from node.tasks.actor_learner import ActorLearnerTask, ActorPart, Learner

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.optim import Optimizer

    from node.mapf.acting import Finished
    from node.mapf.network import Network
    from node.mapf.optimum import Optimum
    from node.mapf.play import Played
    from node.mapf.world import Instance
    from node.transport.messages import Experience

EVAL_SEED = 1_000_000_007  # not a seed of training
DEFAULT_PRESET = "small"
# The share of cells that starts and goals may take. Of the maps of training, with 0 to 50 % obstacles, one in four or
# more then holds them, and a hundred are tried.
MOST_TAKEN = 0.75
FULL: Mapping[str, Value] = {  # DHC's sizes
    "network": "full",
    "agents": 2,
    "map_size": 40,
    "most_steps": 256,
    "capacity": 2048,
    "sequence": 16,
    "burn_in": 0,
    "target_every": 2000,
    "learn_after": 50_000,
    "average": 0.0,
    "all_agents": False,
    "optimum": False,  # on 40 x 40 a search takes seconds per instance
}
PRESETS: Mapping[str, Mapping[str, Value]] = {"small": {}, "full": FULL}
FLAGS: Mapping[str, Mapping[str, Value]] = {
    "small": {
        "steps": 8000,
        "batch_size": 32,
        "lr": 1e-3,
        "lr_schedule": "linear",
        "final_lr": 0.02,
        "clip_norm": 40.0,
    },
    "full": {"steps": 600_000, "batch_size": 192, "lr": 1e-4, "clip_norm": 40.0},
}


@dataclass
class Mapf(ActorLearnerTask):
    """Multi-agent path finding: rank 0 learns, the others act; a step is an update of the learner."""

    preset: str = option(DEFAULT_PRESET, "defaults of the other options", choices=tuple(PRESETS))
    network: str = option("small", "size of the network; full is DHC's", choices=("small", "full"))
    agents: int = option(2, "agents in the hardest setting", at_least=1)
    map_size: int = option(10, "rows of the largest map", at_least=2)
    first_agents: int = option(1, "agents in the easiest setting", at_least=1)
    first_map_size: int = option(10, "rows of the map in the easiest setting", at_least=2)
    most_steps: int = option(64, "maximum steps of a training episode", at_least=1)
    capacity: int = option(8192, "episodes in the replay", at_least=1)
    sequence: int = option(8, "steps learnt at a time", at_least=1)
    burn_in: int = option(4, "steps before those, which warm up the memory", at_least=0)
    n_steps: int = option(2, "steps of a target", at_least=1)
    gamma: float = option(0.99, "discount factor", at_least=0.0, at_most=1.0)
    target_every: int = option(250, "updates between copies to the target network", at_least=1)
    learn_after: int = option(2000, "environment steps before the first update", at_least=1)
    average: float = option(
        0.999,
        "what is tested and kept is an average of the network after each update: the share that"
        " an update keeps of it; 0: the latest (DHC)",
        at_least=0.0,
        below=1.0,
    )
    all_agents: bool = option(True, "learn all agents' values; DHC: only the first agent's")
    comm_loss: float = option(
        0.0, "share of agents' messages dropped on purpose in training", at_least=0.0, at_most=1.0
    )
    eval_comm_loss: float = option(
        0.0, "share of agents' messages dropped in tests", at_least=0.0, at_most=1.0
    )
    eval_comm_loss_also: str = option(
        "", "more such shares to test with, e.g. 0.25,0.5: test_success_at_0.25, …"
    )
    eval_instances: int = option(200, "instances per test, never trained on", at_least=1)
    eval_density: float = option(
        0.3, "share of obstacles in test instances", at_least=0.0, below=1.0
    )
    eval_most_steps: int = option(256, "maximum steps of a test instance", at_least=1)
    optimum: bool = option(True, "also solve test instances by conflict-based search, to compare")

    def __post_init__(self) -> None:
        """Start without the test's instances and their solutions."""
        self._instances: list[Instance] | None = None
        self._optimum: Optimum | None = None

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """Return the defaults that a preset and the broadcast imply.

        Raises:
            OptionError: there is no preset of that name.
        """
        name = settings.get("preset", DEFAULT_PRESET)
        if name not in PRESETS:
            raise unknown("preset", name, PRESETS)
        return {**PRESETS[name], **super().option_defaults(settings)}

    def flag_defaults(self, world_size: int) -> Mapping[str, Value]:
        """Return the task's own defaults of flags of node.train.

        Raises:
            OptionError: see ActorLearnerTask; or the curriculum is impossible, maps are too small, the replay holds
                fewer steps than learn_after, or eval_comm_loss_also has no shares.
        """
        of_all = super().flag_defaults(world_size)
        easiest, hardest = (
            (self.first_agents, self.first_map_size),
            (self.agents, self.map_size),
        )
        if easiest[0] > hardest[0] or easiest[1] > hardest[1] or (hardest[1] - easiest[1]) % 5:
            raise OptionError(
                f"a curriculum from {easiest[0]} agents on {easiest[1]} rows goes to as many or more, in steps of"
                f" 5 rows, not to {hardest[0]} agents on {hardest[1]} rows"
            )
        most = int(MOST_TAKEN * self.first_map_size**2 / 2)
        if self.agents > most:
            raise OptionError(
                f"agents={self.agents} do not fit on {self.first_map_size} x {self.first_map_size} cells: at most"
                f" {most} do, with goals and obstacles"
            )
        if self.learn_after > self.capacity * self.most_steps:
            raise OptionError(
                f"learn_after={self.learn_after}: no more than capacity x most_steps ="
                f" {self.capacity * self.most_steps} steps are kept"
            )
        self._more_losses()  # refuses what is no share
        return {**of_all, **FLAGS[self.preset]}

    def check_batch(self, batch_size: int) -> None:
        """Check that the replay can hold as many sequences as a batch has.

        Raises:
            OptionError: it cannot.
        """
        sequences = self.capacity * -(-self.most_steps // self.sequence)
        if sequences < batch_size:
            raise OptionError(
                f"capacity={self.capacity}: its {sequences} sequences are fewer than the {batch_size} of a batch"
            )

    def make_model(self) -> "Network":
        """Return DHC's network."""
        from node.mapf.network import SIZES, Network

        return Network(SIZES[self.network])

    def make_actor(self, model: "Network", part: ActorPart) -> "MapfActor":
        """Return actors with maps of the open settings."""
        return MapfActor(self, model, part)

    def make_learner(
        self, model: "Network", optimizer: "Optimizer", batch_size: int, clip_norm: float, seed: int
    ) -> Learner:
        """Return DHC's learner.

        Raises:
            OptionError: see held_out; raised here, so that it ends the run before anything was learnt.
        """
        from node.mapf.curriculum import Goal
        from node.mapf.learner import MapfLearner
        from node.mapf.settings import LearningSettings

        self.held_out()
        own = asdict(self)
        settings = LearningSettings(**{f.name: own[f.name] for f in fields(LearningSettings)})
        goal = Goal((self.first_agents, self.first_map_size), self.agents, self.map_size)
        return MapfLearner(
            model,
            optimizer,
            settings,
            goal,
            batch_size=batch_size,
            clip_norm=clip_norm,
            seed=seed,
        )

    def evaluate(self, model: "Network", device: "torch.device") -> dict[str, float]:
        """Return `test_success`, `test_steps` of the solved instances, and the same of conflict-based search.

        `cbs_success` is the share that the search solves within a bound; `steps_over_cbs` is the ratio of the
        policy's steps to the search's, the mean over instances that both solve. `test_success_at_…` is the success
        at each share of `eval_comm_loss_also`.
        """
        played = self._played(model, self.eval_comm_loss)
        solved = [one.steps for one in played if one.solved]
        figures = {"test_success": len(solved) / len(played)}
        figures |= {"test_steps": sum(solved) / len(solved)} if solved else {}
        for loss in self._more_losses():
            also = [one.solved for one in self._played(model, loss)]
            figures[f"test_success_at_{loss:g}"] = sum(also) / len(also)
        return figures | (self._beside_cbs(self.held_out(), played) if self.optimum else {})

    def _played(self, model: "Network", comm_loss: float) -> "list[Played]":
        """Return how the test's instances end if this share of messages is dropped."""
        from node.mapf.play import play

        limits = self.held_out(), self.eval_most_steps
        played: list[Played] = play(model, *limits, comm_loss=comm_loss, seed=EVAL_SEED)
        return played

    def _more_losses(self) -> list[float]:
        """Return the shares of eval_comm_loss_also.

        Raises:
            OptionError: one of them is none.
        """
        name = "--task-set eval_comm_loss_also"
        words = self.eval_comm_loss_also.split(",") if self.eval_comm_loss_also else []
        losses = [parse_value(name, word, float) for word in words]
        for loss in losses:
            check_bounds(name, loss, {"at least": 0, "at most": 1})
        return losses

    def _beside_cbs(
        self, instances: "Sequence[Instance]", played: "Sequence[Played]"
    ) -> dict[str, float]:
        from node.mapf.optimum import solve_all

        if self._optimum is None:  # the same for every test
            self._optimum = solve_all(instances)
        best = self._optimum
        figures = {"cbs_success": best.share_solved}
        if best.mean_makespan is not None:
            figures["cbs_steps"] = best.mean_makespan
        ratios = [
            one.steps / plan.makespan
            for one, plan in zip(played, best.plans, strict=True)
            if one.solved and plan is not None
        ]
        return figures | ({"steps_over_cbs": sum(ratios) / len(ratios)} if ratios else {})

    def held_out(self) -> "list[Instance]":
        """Return the instances of a test: the same for all runs with these options.

        Raises:
            OptionError: maps with so many obstacles do not hold the agents.
        """
        if self._instances is None:
            self._instances = self._draw_held_out()
        return self._instances

    def _draw_held_out(self) -> "list[Instance]":
        import numpy as np

        from node.mapf.world import draw_instance

        of_each = self.agents, self.map_size, self.eval_density
        numbers = range(self.eval_instances)
        try:
            return [draw_instance(np.random.default_rng([EVAL_SEED, n]), *of_each) for n in numbers]
        except ValueError as error:
            raise OptionError(
                f"eval_density={self.eval_density}: {error}: fewer obstacles or agents, or larger maps"
            ) from None


class MapfActor:
    """DHC's actors of one process: see `node.tasks.actor_learner.Actor`."""

    def __init__(self, task: Mapf, model: "Network", part: ActorPart) -> None:
        from node.mapf.acting import Actors, exploration

        self._settings = [(task.first_agents, task.first_map_size)]
        epsilons = [exploration(number, part.actors) for number in part.numbers]
        self._decides_below = exploration(part.actors // 2, part.actors)
        self._actors = Actors(
            model,
            self._draw,
            epsilons,
            any_explores=task.all_agents,
            first_agent_only=not task.all_agents,
            n_steps=task.n_steps,
            gamma=task.gamma,
            most_steps=task.most_steps,
            comm_loss=task.comm_loss,
            seed=part.seed,
        )

    @property
    def version(self) -> int:
        """Version of the weights that act."""
        return self._actors.version

    @version.setter
    def version(self, version: int) -> None:
        self._actors.version = version

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self._actors.steps

    def step(self) -> "list[Experience]":
        """Make one step in every environment; return the experience of episodes that ended."""
        return [self._experience(finished) for finished in self._actors.step()]

    def heed(self, advice: Mapping[str, object]) -> None:
        """Draw maps from the settings that the learner advises."""
        settings = advice["settings"]
        if not isinstance(settings, Sequence):
            raise ValueError("advice without settings")
        self._settings = [(int(agents), int(size)) for agents, size in settings]

    def _draw(self, random: "np.random.Generator") -> "tuple[tuple[int, int], Instance]":
        from node.mapf.world import draw_instance

        setting = self._settings[int(random.integers(len(self._settings)))]
        return setting, draw_instance(random, *setting)

    def _experience(self, finished: "Finished") -> "Experience":
        from node.transport.messages import Experience

        episode = finished.episode
        figures = {
            "agents": finished.setting[0],
            "size": finished.setting[1],
            "solved": float(finished.solved),
            # Actors that explore much say little about what was learnt.
            "decides": float(finished.epsilon <= self._decides_below),
            "episode_return": float(episode.rewards.sum(0).mean()),
            "episode_length": episode.length,
        }
        return Experience(episode.arrays(), figures)
