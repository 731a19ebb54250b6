"""The learner's loop: take the experience that has arrived, make an update, publish.

It waits for actors only until there is enough to learn from. An actor that is slow, cut off or dead costs only its own
experience.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING

import torch

from node.accounting.link_counters import final_link_bytes, link_bytes
from node.accounting.metrics import Clock, Metrics, Progress, seconds_text
from node.actor_learner.silence import Silence
from node.actor_learner.staleness import Staleness, oldest_lag, require_times
from node.base.once_in import OnceIn
from node.base.options import OptionError
from node.tasks.actor_learner import SEEDS, ActorLearnerTask
from node.tasks.saved import Saved
from node.training.checkpoint import (
    file_name,
    find_for_resume,
    read,
    remove_others,
    require_same,
    write_model,
    write_whole,
)
from node.training.config import TrainConfig
from node.training.optim import make_optimizer, set_learning_rate
from node.transport.learner_socket import Arrival, LearnerSocket
from node.transport.weights import Encoder
from protocol.metrics import End, Evaluation, Experience, LearnerFigures, Start, Step

if TYPE_CHECKING:
    from torch import nn

WAIT_S = 0.5
REPORT_INTERVAL_S = 2.0
GOODBYE_S = 18.0  # an actor on a slow link may need that long


def learn(
    config: TrainConfig, task: ActorLearnerTask, model: "nn.Module", clock: Clock
) -> "nn.Module":
    """Make `config.steps` updates.

    Raises:
        RuntimeError: no experience that could be learnt came for longer than ranks may be silent.
    """
    return _Learning(config, task, model, clock).run()


class _Learning:
    """The loop of one run."""

    def __init__(
        self, config: TrainConfig, task: ActorLearnerTask, model: "nn.Module", clock: Clock
    ) -> None:
        self._config, self._task, self._clock = config, task, clock
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device)
        self._optimizer = make_optimizer(config, model)
        self._learner = task.make_learner(
            model, self._optimizer, config.batch_size, config.clip_norm, config.seed % SEEDS
        )
        self._done = self._resume() if config.resume else 0
        self._metrics = Metrics(
            config.run_dir, 0, config.ranks.local_world_size, append=config.resume is not None
        )
        self._progress = Progress(0, config.steps, self._done)
        ranks = config.ranks
        address, encoder = (ranks.master_addr, ranks.master_port), Encoder(task.weights)
        self._socket = LearnerSocket(address, encoder, ranks.world_size, task.broadcast)
        self._acted, self._learnt = Staleness(), Staleness()  # of all experience; without rejected
        self._made: Counter[str] = Counter()  # of all experience that arrived
        self._by_rank: dict[int, Counter[str]] = {}
        self._tested: dict[str, float] = {}
        self._report_due = OnceIn(REPORT_INTERVAL_S)
        self._silence = Silence(config.silence_s)
        self._update_s = 0.0  # time of all updates, with the messages between them
        self._malformed = 0
        self._sent_before = 0

    def run(self) -> "nn.Module":
        """Run the loop; return the model."""
        now = self._clock.read()
        self._metrics.write(Start(0, time.time(), self._config.to_json(), now, link_bytes()))
        self._progress.say(
            f"rank 0 of {self._config.ranks.world_size} on {self._device}: {self._config.task},"
            f" learns, ready after {now['total']:.1f} s"
        )
        self._clock.switch("other")
        try:
            self._publish(self._done)
            if not self._done:
                self._test(0)  # the untrained model
            loss = float("nan")
            for update in range(self._done + 1, self._config.steps + 1):
                loss = self._turn(update)
            if self._config.run_dir:
                write_model(self._config.run_dir, self._learner.tested)
            with self._clock.measure("waiting"):
                self._socket.finish(GOODBYE_S)
        finally:
            self._socket.close()
        self._end(loss)
        return self._learner.tested

    def _turn(self, update: int) -> float:
        """Make an update and what follows it; return the loss."""
        loss = self._update(update)
        # Not after the last update: nobody would act by these weights.
        if update % self._task.publish_every == 0 and update < self._config.steps:
            self._publish(update)
        if self._config.tests_after(update):
            self._test(update)
        if self._config.saves_after(update):
            self._save(update)
        if self._report_due():
            self._metrics.write(self._experience(update))
        return loss

    def _update(self, update: int) -> float:
        before = self._clock.read()
        with self._clock.measure("comm"):
            self._take(update - 1)
            self._require_actors()
            while not self._learner.is_ready:
                with self._clock.measure("waiting"):
                    self._socket.wait(WAIT_S)
                self._take(update - 1)
                self._require_actors()
        with self._clock.measure("compute"):
            set_learning_rate(self._optimizer, self._config, update)
            loss = self._learner.update(update)
        after, sent = self._clock.read(), self._sent_bytes()
        waiting_s = after["waiting"] - before["waiting"]
        if update > self._done + 1:  # the first one includes the wait for enough experience
            self._update_s += after["total"] - before["total"]
        line = Step(
            0,
            time.time(),
            update,
            sent_bytes=sent - self._sent_before,
            loss=loss,
            compute_s=after["compute"] - before["compute"],
            comm_s=after["comm"] - before["comm"] + waiting_s,
            waiting_s=waiting_s,
        )
        self._metrics.write(line)
        self._sent_before = sent  # what is published now counts as the next update's
        self._progress.step(update, loss, sent)
        return loss

    def _require_actors(self) -> None:
        if self._silence.is_too_long and self._learner.room > 0:
            raise RuntimeError(
                "no experience that could be learnt came from any actor for"
                f" {self._config.silence_s:.0f} s"
            )

    def _take(self, update: int) -> None:
        """Take the experience that has arrived, as far as there is room."""
        if self._learner.room > 0:
            for arrival in self._socket.receive(update, most=self._learner.room):
                try:
                    self._take_one(arrival, update)
                except ValueError:
                    self._malformed += 1
            self._silence.listened()

    def _take_one(self, arrival: Arrival, update: int) -> None:
        """Count a piece of experience, and add it to what is learnt unless it is too old.

        Raises:
            ValueError: it is invalid, or not of this task.
        """
        experience = arrival.experience
        require_times(experience, update)
        self._learner.check(experience)
        counts = Counter(pieces=1, steps=experience.env_steps, received_bytes=arrival.size_bytes)
        bound, learnt_after = self._task.max_staleness, update + self._learner.updates_before
        arrived = arrival.rank, experience, learnt_after, time.time()
        self._acted.add(*arrived)
        lag = oldest_lag(experience, learnt_after)
        if bound and self._task.when_stale == "reject" and lag > bound:
            counts += Counter(rejected=1, rejected_steps=experience.env_steps)
        else:
            self._learnt.add(*arrived)
            self._learner.add(experience)
            self._silence.end()
        self._made += counts
        self._by_rank.setdefault(arrival.rank, Counter()).update(counts)

    def _publish(self, update: int) -> None:
        with self._clock.measure("comm"):
            self._socket.publish(update, self._model.state_dict(), self._learner.advice())
            for staleness in (self._acted, self._learnt):
                staleness.publish(update, time.time())

    def _test(self, update: int) -> None:
        before_s = self._clock.read()["eval"]
        with self._clock.measure("eval"):
            model = self._learner.tested
            model.eval()
            with torch.no_grad():
                self._tested = self._task.evaluate(model, self._device)
            model.train()
        eval_s = self._clock.read()["eval"] - before_s
        self._metrics.write(Evaluation(0, time.time(), update, eval_s), self._tested)
        text = "  ".join(f"{name} {value:.4f}" for name, value in self._tested.items())
        self._progress.say(f"update {update}/{self._config.steps}  {text}  in {eval_s:.1f} s")

    def _save(self, update: int) -> None:
        folder = self._config.run_dir
        assert folder is not None  # else parse_config has refused
        with self._clock.measure("checkpoint"):
            state: Saved = {
                "settings": self._config.decisive(),
                "step": update,
                "model": self._model.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "task": self._learner.state(),
            }
            write_whole(folder / file_name(0, update), state)
            remove_others(folder, 0, update)

    def _resume(self) -> int:
        """Continue from the latest checkpoint, which does not hold earlier experience; return its step.

        Raises:
            OptionError: there is none, or it is damaged, of another run, or of a finished one.
        """
        folder = self._config.resume
        assert folder is not None
        with self._clock.measure("checkpoint"):
            paths = find_for_resume(folder, 0)
            path = paths[max(paths)]
            state = read(path, self._device)
            require_same(path, state["settings"], self._config.decisive())
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._learner.load_state(state["task"])
        done = state["step"]
        if done >= self._config.steps:
            raise OptionError(f"--steps: {path} is of step {done} already")
        return done

    def _experience(self, update: int) -> Experience:
        """Return the line of metrics on the experience so far."""
        said = self._figures(update, {})
        return Experience(
            rank=0,
            time=time.time(),
            step=update,
            env_steps=said.env_steps,
            pieces=said.pieces,
            rejected=said.rejected,
            mean_steps=said.mean_steps,
            mean_steps_kept=said.mean_steps_kept,
            replay_ratio=said.replay_ratio,
            duplicates=said.duplicates,
            malformed=said.malformed,
            received_bytes=said.received_bytes,
            updates_s=said.updates_s,
            staleness_updates=said.staleness_updates,
            staleness_s=said.staleness_s,
            weights_age_s=said.weights_age_s,
        )

    def _figures(self, update: int, actors: dict[int, dict[str, float]]) -> LearnerFigures:
        """Return the figures so far; `actors` are the figures of each actor."""
        made = self._made
        kept = made["steps"] - made["rejected_steps"]
        pieces_kept = made["pieces"] - made["rejected"]
        updates, changed = update - self._done - 1, self._socket.changed
        learnt = self._learnt.figures()
        return LearnerFigures(
            env_steps=made["steps"],
            pieces=made["pieces"],
            rejected=made["rejected"],
            mean_steps=round(made["steps"] / max(1, made["pieces"]), 2),
            mean_steps_kept=round(kept / max(1, pieces_kept), 2),
            replay_ratio=round(self._learner.steps_learnt / max(1, made["steps"]), 4),
            duplicates=sum(peer.duplicates for peer in self._socket.peers.values()),
            malformed=self._socket.malformed + self._malformed,
            received_bytes=made["received_bytes"],
            updates_s=round(updates / self._update_s, 4) if self._update_s else 0.0,
            staleness_updates=learnt["staleness_updates"],
            staleness_s=learnt["staleness_s"],
            weights_age_s=self._acted.figures()["weights_age_s"],
            pull_every=self._task.pull_every,
            publish_every=self._task.publish_every,
            broadcast=self._task.broadcast,
            changed=None if changed is None else round(changed, 4),
            actors=actors,
        )

    def _actors(self) -> dict[int, dict[str, float]]:
        """Return the figures of each actor by rank, including those of its goodbye."""
        return {
            rank: {
                **peer.figures,
                "connections": peer.connections,
                "lives": peer.lives,
                "duplicates": peer.duplicates,
                **self._by_rank.get(rank, Counter()),
                **self._acted.mean_age_s(rank),
            }
            for rank, peer in sorted(self._socket.peers.items())
        }

    def _sent_bytes(self) -> int:
        return sum(self._socket.traffic.bytes_by_purpose().values())

    def _end(self, loss: float) -> None:
        with self._clock.measure("comm"):
            carried = final_link_bytes()
        seconds = self._clock.read()
        end = End(
            0,
            time.time(),
            self._config.steps,
            seconds,
            self._socket.traffic.bytes_by_purpose(),
            self._socket.traffic.sums(),
            carried,
            final_loss=loss,
            tested=dict(self._tested),
            experience=self._figures(self._config.steps, self._actors()),
        )
        self._metrics.write(end)
        self._progress.say(
            f"rank 0 done in {seconds['total']:.1f} s: {seconds_text(seconds)}; "
            f"{self._made['pieces']} pieces of experience, sent {self._sent_bytes() / 1e6:.1f} MB"
        )
