"""An actor's loop: act, hand over the experience, and take newer weights without waiting for them.

It asks the learner for weights at intervals or, with pull_every=0, gets each version as it comes, from the rank that
the learner assigns.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from node.accounting.link_counters import final_link_bytes, link_bytes
from node.accounting.metrics import Clock, Metrics, Progress, seconds_text
from node.actor_learner.staleness import Distribution
from node.base.once_in import OnceIn
from node.tasks.actor_learner import SEEDS, Actor, ActorLearnerTask, ActorPart
from node.training.config import TrainConfig
from node.transport.actor_socket import ActorSocket, Identity
from node.transport.broadcast import LEARNER
from node.transport.messages import (
    FINISHED,
    FOLLOW,
    Message,
    read_advice,
    read_count,
    read_text,
    read_time,
)
from node.transport.relay import Received, Relay
from node.transport.weights import decode
from protocol.metrics import End, Rollout, Start, Weights

if TYPE_CHECKING:
    from torch import nn

WAIT_S = 0.05  # also polls for forwarded weights, which wake no socket here
REPORT_INTERVAL_S = 2.0


def act(
    config: TrainConfig, task: ActorLearnerTask, model: "nn.Module", clock: Clock
) -> "nn.Module":
    """Act until the learner has finished.

    Raises:
        RuntimeError: there was no connection to the learner for longer than ranks may be silent.
    """
    return _Acting(config, task, model, clock).run()


class _Acting:
    """The loop of one process."""

    def __init__(
        self, config: TrainConfig, task: ActorLearnerTask, model: "nn.Module", clock: Clock
    ) -> None:
        ranks = config.ranks
        self._config, self._task, self._model, self._clock = config, task, model.eval(), clock
        goes_on = ranks.restarts > 0 or config.resume is not None
        self._metrics = Metrics(config.run_dir, ranks.rank, ranks.local_world_size, append=goes_on)
        self._progress = Progress(ranks.rank, config.steps)
        self._actor: Actor = task.make_actor(model, part_of(config, task.actors))
        me = Identity(ranks.rank, time.time_ns())
        address = (ranks.master_addr, ranks.master_port)
        self._relay = None if task.pull_every else Relay(address, me, ranks.world_size)
        if self._relay and task.broadcast == "star":
            self._relay.follow(LEARNER, "")  # in other topologies, the learner assigns the source
        port = self._relay.port if self._relay else 0
        self._socket = ActorSocket(address, me, task.window, port)
        self._have = -1  # version of the learner's weights; -1: none
        self._pulled_at_step = -task.pull_every
        self._asked_at, self._asked_at_update = 0.0, -1
        self._pull_s, self._publish_lag_s, self._pulled_bytes = (Distribution() for _ in range(3))
        self._acting_s: tuple[float, float] | None = None  # begin and end of all steps so far
        self._full_s = 0.0  # of that time, the window was full
        self._waiting_s = 0.0  # with a full window, since the last step
        self._episodes = 0
        self._is_over = False
        self._report_due = OnceIn(REPORT_INTERVAL_S)
        self._latest: dict[str, float] = {}

    def run(self) -> "nn.Module":
        """Run the loop; return the model."""
        now = self._clock.read()
        rank, size = self._config.ranks.rank, self._config.ranks.world_size
        self._metrics.write(Start(rank, time.time(), self._config.to_json(), now, link_bytes()))
        self._progress.say(
            f"rank {rank} of {size}: {self._config.task}, {self._task.actors} actors, "
            f"ready after {now['total']:.1f} s"
        )
        self._clock.switch("other")
        told: dict[str, float] = {}
        try:
            while not self._is_over:
                self._turn()
            self._report()
            told = self._told()
        finally:
            self._close(told)
        self._end(told)
        return self._model

    def _turn(self) -> None:
        """Make a step, or wait, and process what has arrived."""
        if self._relay is None:
            self._pull_if_due()
        is_full = self._socket.is_full
        waits, begun_at = is_full or self._must_wait_for_weights(), time.monotonic()
        with self._clock.measure("waiting" if waits else "comm"):
            messages = self._socket.receive(WAIT_S if waits else 0.0)
        with self._clock.measure("comm"):
            self._heed(messages)
            if self._relay:
                self._take_broadcasts(self._relay)
        if not waits:
            self._step()
        elif is_full:
            self._waiting_s += time.monotonic() - begun_at
        self._require_learner()
        if self._report_due():
            self._report()

    def _step(self) -> None:
        begun_at = self._acting_s[0] if self._acting_s else time.monotonic()
        self._full_s += self._waiting_s  # only now: no step may have followed it
        self._waiting_s = 0.0
        with self._clock.measure("rollout"):
            finished = self._actor.step()
        self._acting_s = begun_at, time.monotonic()
        for experience in finished:
            self._episodes += int(experience.figures.get("episodes", 1))
            self._latest |= experience.figures
            with self._clock.measure("comm"):
                self._socket.hand_over(experience)

    def _pull_if_due(self) -> None:
        steps = self._actor.steps // self._task.actors
        if not self._socket.has_asked and steps - self._pulled_at_step >= self._task.pull_every:
            self._pulled_at_step, self._asked_at = steps, time.time()
            self._asked_at_update = self._socket.learner_update
            self._socket.ask(self._have)

    def _must_wait_for_weights(self) -> bool:
        """Return whether to wait for weights: there are none yet, or they are older than experience may be."""
        if self._have < 0:
            return True
        bound, update = self._task.max_staleness, self._socket.learner_update
        paces = bound > 0 and self._task.when_stale == "pace"
        if not paces or update - self._have <= bound:
            return False
        if self._relay is None and not self._socket.has_asked and update > self._asked_at_update:
            # ask now, before it is due
            self._pulled_at_step = -self._task.pull_every
        return True

    def _heed(self, messages: list[Message]) -> None:
        for message in messages:
            if message.kind == FINISHED:
                self._is_over = True
            elif message.kind == FOLLOW:
                if self._relay:
                    self._relay.follow(
                        read_count(message.header, "parent"), read_text(message.header, "place")
                    )
            else:
                self._take_answer(message)

    def _take_answer(self, message: Message) -> None:
        self._pull_s.add(time.time() - self._asked_at)
        if message.body and message.header["have"] == self._have:
            self._take_weights(message.header, message.body)
        else:  # no newer weights, or changes to another version than ours
            self._actor.heed(read_advice(message.header))

    def _take_broadcasts(self, relay: Relay) -> None:
        """Take the forwarded weights that have arrived, from the latest whole version on."""
        received = relay.receive()
        first = max((i for i, one in enumerate(received) if one.base is None), default=0)
        for number, one in enumerate(received):
            if number >= first and not self._can_take(one):
                relay.start_over()
                return
            rank, came = self._config.ranks.rank, one.receipt
            self._metrics.write(Weights(rank, time.time(), came.version, *came))

    def _can_take(self, received: Received) -> bool:
        """Take forwarded weights if they fit; return whether they did.

        Raises:
            ValueError: they do not, although they came from the learner.
        """
        if received.base not in (None, self._have):
            return False
        try:
            self._take_weights(received.header, received.body)
        except ValueError:
            if received.receipt.source == LEARNER:
                raise
            return False
        return True

    def _take_weights(self, header: Mapping[str, object], body: bytes) -> None:
        """Load weights into the model that acts."""
        decode(read_text(header, "encoding"), body, self._model)
        version = read_count(header, "version")
        if (
            self._have < 0 and self._config.resume is not None
        ):  # else it repeats the first run's draws
            part = part_of(self._config, self._task.actors, version)
            self._actor = self._task.make_actor(self._model, part)
        self._actor.heed(read_advice(header))
        self._have = self._actor.version = version
        self._pulled_bytes.add(len(body))
        self._publish_lag_s.add(time.time() - read_time(header, "published_at_s"))

    def _require_learner(self) -> None:
        if self._socket.cut_off_s > self._config.silence_s:
            ranks = self._config.ranks
            raise RuntimeError(
                f"there was no connection to the learner at {ranks.master_addr}:{ranks.master_port}"
                f" for {self._config.silence_s:.0f} s"
            )

    def _report(self) -> None:
        line = Rollout(
            self._config.ranks.rank,
            time.time(),
            max(0, self._have),
            self._actor.steps,
            self._episodes,
            episode_return=self._latest.get("episode_return"),
            episode_length=self._latest.get("episode_length"),
        )
        self._metrics.write(line)

    def _end(self, told: dict[str, float]) -> None:
        with self._clock.measure("comm"):
            carried = final_link_bytes()
        seconds = self._clock.read()
        connections, env_steps = self._socket.connections, self._actor.steps
        end = End(
            self._config.ranks.rank,
            time.time(),
            max(0, self._have),
            seconds,
            self._socket.traffic.bytes_by_purpose(),
            self._socket.traffic.sums(),
            carried,
            acted=told | {"connections": connections, "env_steps": env_steps},
        )
        self._metrics.write(end)
        sent_bytes = sum(self._socket.traffic.bytes_by_purpose().values())
        self._progress.say(
            f"rank {self._config.ranks.rank} done in {seconds['total']:.1f} s: "
            f"{seconds_text(seconds)}; sent {sent_bytes / 1e6:.1f} MB"
        )

    def _close(self, told: dict[str, float]) -> None:
        """Stop forwarding weights, and say goodbye."""
        try:
            if self._relay:
                self._socket.traffic.include(self._relay.close())
        finally:
            self._socket.close(told)

    def _told(self) -> dict[str, float]:
        """Return the figures for the goodbye to the learner."""
        pulled = self._pulled_bytes.figures()
        return {
            **self._pace(),
            "not_handed_over": self._socket.unanswered,
            **({"pulled_bytes": pulled["mean"]} if pulled else {}),
            **_named("pull_s", self._pull_s),
            **_named("publish_lag_s", self._publish_lag_s),
        }

    def _pace(self) -> dict[str, float]:
        """Return how the steps of an environment followed each other, from the first one on; nothing without a step."""
        if self._acting_s is None:
            return {}
        begun_at, ended_at = self._acting_s
        acting_s = ended_at - begun_at
        return {
            "step_interval_s": acting_s / (self._actor.steps // self._task.actors),
            "window_full_share": min(1.0, self._full_s / acting_s) if acting_s else 0.0,
        }


def _named(name: str, distribution: Distribution) -> dict[str, float]:
    return {f"{name}_{which}": value for which, value in distribution.figures().items()}


def part_of(config: TrainConfig, actors: int, version: int = 0) -> ActorPart:
    """Return this process's part of all actors, of which each rank has as many.

    Args:
        config: the run's.
        actors: actors of each rank.
        version: of the first weights that a resumed run got from its learner.
    """
    rank, acting_ranks = config.ranks.rank, config.ranks.world_size - 1
    of_all = actors * acting_ranks
    # A restarted actor, and one of a resumed run, draw other episodes than before.
    seed = config.seed + 1_000_003 * (rank + 1) + 7_919 * config.ranks.restarts + 104_729 * version
    return ActorPart(range(rank - 1, of_all, acting_ranks), of_all, seed % SEEDS)
