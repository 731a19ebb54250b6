"""Evaluation of the model: when it is tested, and which replica or average.

During training, rank 0 tests the parameters that the ranks last agreed on, and the other ranks go on. If ranks agree
only at the end, rank 0 tests what it has: its own parameters (sparta, gossip), its own shared ones (eager-diloco), or
the average of its island (fedavg with island_size). So rank 0 is late for the next exchange, and ranks that compute
meanwhile get that time for free. After training (`--eval after`), all tests are made at the end, each on the average
over all ranks at its step, for which every rank kept its own part: tests then neither take time from training nor give
it any. The task's statistics that a test depends on (`Task.statistics`) are those of rank 0 at that step.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from node.accounting.metrics import Clock, Metrics, Progress
from node.dist.comm import Comm
from node.dist.flat import flatten, to_bytes, unflatten_into
from node.strategies.base import Strategy
from node.tasks.draws import kept_draws
from node.training.config import TrainConfig
from protocol.metrics import Evaluation as EvaluationLine

if TYPE_CHECKING:
    from node.tasks.base import Task


class Evaluation:
    """The tests of one run, as one rank takes part in them.

    Args:
        config: says when to test.
        task: makes the tests.
        strategy: already set up.
        comm: averages over the ranks.
        clock: all of it counts as its bucket `eval`.
        metrics: gets a line for each test.
        progress: prints each test.
        kept: what is still to be tested, by step: parameters and running statistics as one flat tensor, then copies
            of the task's statistics.

    Attributes:
        tested: the figures of the last test; empty on all ranks but 0.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: "Task",
        strategy: Strategy,
        comm: Comm,
        clock: Clock,
        metrics: Metrics,
        progress: Progress,
        kept: dict[int, list[Tensor]],
    ) -> None:
        self._config = config
        self._task = task
        self._strategy = strategy
        self._comm = comm
        self._clock = clock
        self._metrics = metrics
        self._progress = progress
        self._kept = kept
        self._statistics = running_statistics(strategy.model)
        self._own_statistics = task.statistics(strategy.model)
        self._device = strategy.parameters[0].device
        self.tested: dict[str, float] = {}

    def after(self, step: int) -> None:
        """Test now, or keep a copy to test later, if a test is due after this step.

        All ranks call it. Kept copies are tested after the last step, before that step's own test.
        """
        if not self._config.tests_after(step):
            return
        with self._clock.measure("eval"):
            if self._config.eval == "after" and step < self._config.steps:
                self._keep(step)
                return
            self._test_kept()
            if self._statistics:
                self._comm.average(self._statistics, purpose="eval")
            if self._comm.rank == 0:
                with self._strategy.outer_model() as model:
                    self._test(step, model)

    def _keep(self, step: int) -> None:
        with self._strategy.outer_model():
            self._kept[step] = self._now()

    def _now(self) -> list[Tensor]:
        return [flatten(self._tensors), *(tensor.clone() for tensor in self._own_statistics)]

    def _be(self, flat: Tensor, *statistics: Tensor) -> None:
        unflatten_into(flat, self._tensors)
        for tensor, value in zip(self._own_statistics, statistics, strict=True):
            tensor.copy_(value)

    def _test_kept(self) -> None:
        if not self._kept:
            return
        own = self._now()
        checks = [to_bytes(kept[:1]) for kept in self._kept.values()]
        alike = self._comm.are_equal(checks, self._device, purpose="eval")
        for (step, (flat, *statistics)), same in zip(self._kept.items(), alike, strict=True):
            if not same:  # if all ranks have the same, that is the average
                self._comm.all_reduce(flat, purpose="eval")
                flat /= self._comm.world_size
            self._be(flat, *statistics)
            if self._comm.rank == 0:
                self._test(step, self._strategy.model)
        self._be(*own)
        self._kept.clear()

    def _test(self, step: int, model: nn.Module) -> None:
        before_s = self._clock.read()["eval"]
        model.eval()  # the next step switches back to train mode
        # Only this rank tests: training must not notice.
        with torch.no_grad(), kept_draws(self._device):
            self.tested = self._task.evaluate(model, self._device)
        eval_s = self._clock.read()["eval"] - before_s
        self._metrics.write(EvaluationLine(0, time.time(), step, eval_s), self.tested)
        text = "  ".join(f"{name} {value:.4f}" for name, value in self.tested.items())
        self._progress.say(f"step {step}/{self._config.steps}  {text}  in {eval_s:.1f} s")

    @property
    def _tensors(self) -> Sequence[Tensor]:
        return [*self._strategy.parameters, *self._statistics]


def running_statistics(model: nn.Module) -> list[Tensor]:
    """Return means and variances of batch norms: each rank has its own, and only eval mode uses them.

    Other buffers are left alone: averaging changes constants by a rounding error, or overflows.
    """
    from torch.nn.modules.batchnorm import _NormBase

    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    both = [tensor for norm in norms for tensor in (norm.running_mean, norm.running_var)]
    return [tensor for tensor in both if tensor is not None]
