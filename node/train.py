"""Train one model on several ranks.

The same program runs alone, under torchrun, by hand on each node, and under cluster.launch:

    python -m node.train
    torchrun --nproc-per-node 3 -m node.train --strategy fedavg --set H=20
    python -m node.train --master-addr node1 --nnodes 3 --node-rank 1

Every rank runs the whole loop below. Strategies (node/strategies) decide what ranks send each other, tasks
(node/tasks) what is learnt. Writes metrics.jsonl and, on rank 0, model.pt to $GRADWIRE_RUN_DIR: docs/formats.md.
"""

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from node.accounting.metrics import Clock, Metrics, Progress, seconds_text
from node.base.options import OptionError
from node.strategies import strategy_class
from node.tasks import task_class
from node.tasks.actor_learner import ActorLearnerTask
from node.training.compiler import defer_compiler, defer_meta_kernels
from node.training.config import TrainConfig, parse_config
from protocol.metrics import End, Start, Step
from protocol.rank import EXIT_USAGE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from node.tasks.base import Task

STARTED = time.perf_counter()
IN_IMAGE = {"gymnasium", "numpy", "pymapf", "safetensors", "torch", "torchvision", "zmq"}


def train(config: TrainConfig, given: "Task | None" = None) -> "nn.Module":
    """Run the training loop, top to bottom.

    Args:
        config: how to train.
        given: the task to learn; None creates the one that the configuration names.

    Returns:
        The trained model, the same on every rank.

    Raises:
        OptionError: the request is impossible (no data, batch too large); raised before ranks meet.
        RuntimeError: a collective failed: another rank died, or did not come within the timeout.
    """
    import torch  # not at the top: see main()

    from node.accounting.link_counters import link_bytes, wait_until_delivered
    from node.dist.comm import Comm
    from node.dist.flat import to_bytes
    from node.dist.process_group import process_group
    from node.tasks.base import RunPart
    from node.tasks.draws import seed_draws
    from node.training.checkpoint import Checkpoints, settings_of, write_model
    from node.training.evaluation import Evaluation
    from node.training.optim import make_optimizer, set_learning_rate, start_clipping, time_steps
    from node.training.shards import make_shard

    ranks = config.ranks
    rank, world_size = ranks.rank, ranks.world_size
    clock = Clock(STARTED)
    torch.set_num_threads(config.threads)
    gpus = torch.cuda.device_count() >= ranks.local_world_size  # nccl needs one for each rank
    device = torch.device(f"cuda:{ranks.local_rank}" if gpus else "cpu")
    if gpus:
        torch.cuda.set_device(device)  # nccl, and a user's plain "cuda", use the current one

    # The same seed gives the same parameters on every rank, so they need not be sent.
    seed_draws(config.seed)
    task = given or _task(config)
    task.load(config.data_dir)
    task.begin(RunPart(rank, world_size, config.seed, config.steps))
    shard = make_shard(config, task.train_size, task.labels, own_samples=task.own_samples)
    model = task.make_model().to(device)
    optimizer = make_optimizer(config, model)
    time_steps(optimizer, clock)
    data = task.fingerprint()
    # From here on, randomness is only in dropout and augmentation, which each rank draws for itself.
    seed_draws(config.seed + 1_000_003 * (rank + 1))

    model_bytes = sum(parameter.nbytes for parameter in model.parameters())
    with process_group(ranks, device, config.timeout_for_s(model_bytes)):
        comm = Comm(ranks, clock)
        carried = link_bytes()  # before any collective: none completes until all ranks are here
        initial = to_bytes(list(model.parameters()))
        shared = {"options": config.shared(), "data": data}
        comm.require_equal({**shared, "initial parameters": initial}, device)
        kept: dict[int, list[Tensor]] = {}  # weights that are still to be tested, by step
        settings = settings_of(config, task, data)
        checkpoints = Checkpoints(config, settings, task, model, optimizer, comm, kept)
        done = 0
        if config.resume:
            with clock.measure("checkpoint"):
                done = checkpoints.resume()
        strategy = strategy_class(config.strategy)(**config.strategy_options)
        strategy.samples = shard.size
        strategy.setup(model, optimizer, comm, config.seed)
        checkpoints.recall(strategy)
        clip_own = start_clipping(config.clip_norm, strategy)

        metrics = Metrics(
            config.run_dir, rank, ranks.local_world_size, append=config.resume is not None
        )
        progress = Progress(rank, config.steps, done)
        evaluation = Evaluation(config, task, strategy, comm, clock, metrics, progress, kept)
        now = clock.read()
        metrics.write(Start(rank, time.time(), config.to_json(), now, carried))
        progress.say(
            f"rank {rank} of {world_size} on {device}: {config.task}, {config.strategy}, "
            f"ready after {now['total']:.1f} s{f', goes on after step {done}' if done else ''}"
        )
        sent_before = 0
        clock.switch("other")

        for step in range(done + 1, config.steps + 1):
            before = clock.read()
            comm.ledger.step = step
            with clock.measure("rollout"):
                if collected := task.prepare(step, model, comm):
                    metrics.write_rollout(step, collected)
            with clock.measure("data"):
                samples = task.samples(step)
                samples = shard.take(step) if samples is None else samples
                pieces = samples.split(config.batch_size)
            with clock.measure("compute"):
                set_learning_rate(optimizer, config, step)
                model.train()  # each time: an evaluation changes the mode
                optimizer.zero_grad()
                losses = []
                for number, piece in enumerate(pieces, 1):
                    with clock.measure("data"):
                        batch = task.batch(piece, device)
                    with torch.autocast(device.type, torch.bfloat16, config.autocast == "bf16"):
                        loss = task.loss(model, batch) / len(pieces)
                    strategy.accumulating = number < len(pieces)
                    loss.backward()
                    losses.append(loss.detach())
                clip_own()
                with clock.measure("strategy"):  # except its waiting, and the optimiser's steps
                    strategy.step(step)
                    if step == config.steps:
                        strategy.finish(step)
                loss_value = float(sum(losses))
            after, sent = clock.read(), comm.sent_bytes["train"]
            line = Step(
                rank,
                time.time(),
                step,
                sent_bytes=sent - sent_before,
                loss=loss_value,
                compute_s=after["compute"] - before["compute"],
                strategy_s=after["strategy"] - before["strategy"],
                comm_s=after["comm"] - before["comm"],
            )
            metrics.write(line)
            sent_before = sent  # a checkpoint may send more, which counts as the next step's
            progress.step(step, loss_value, sent)

            evaluation.after(step)
            metrics.write_collectives(comm.ledger.take_lines())

            if config.saves_after(step):
                with clock.measure("checkpoint"):
                    checkpoints.save(step, strategy)

        if rank == 0 and config.run_dir:
            write_model(config.run_dir, model)
        with clock.measure("comm"):
            wait_until_delivered(config.silence_s)
        carried = link_bytes()
        seconds = clock.read()
        end = End(
            rank,
            time.time(),
            config.steps,
            seconds,
            comm.sent_bytes,
            comm.ledger.sums(),
            carried,
            final_loss=loss_value,
            test_accuracy=evaluation.tested.get("test_accuracy"),
            tested=dict(evaluation.tested),
        )
        metrics.write(end)
        progress.say(
            f"rank {rank} done in {seconds['total']:.1f} s: {seconds_text(seconds)}; "
            f"sent {sum(comm.sent_bytes.values()) / 1e6:.1f} MB"
        )
    return model


def _task(config: TrainConfig) -> "Task":
    from node.tasks.base import Task

    task = task_class(config.task)(**config.task_options)
    if not isinstance(task, Task):
        raise OptionError(f"--task {config.task}: one rank learns it, and others act in it")
    return task


def _begin(config: TrainConfig) -> None:
    """Train as the task requires: all ranks alike, or one learner and several actors."""
    if issubclass(task_class(config.task), ActorLearnerTask):
        from node.actor_learner.run import run

        run(config, STARTED)
    else:
        train(config)


def main() -> None:
    """Exit with 0 when trained, 2 with one line for a user's mistake, 1 for a failure."""
    # What is printed before training ends with its reader (`--help | head`); a rank does not.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        config = parse_config(sys.argv[1:])
        if config.dry_run:
            print(json.dumps(config.to_json(), indent=2))
            return
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # OpenBLAS reads its thread count when it is loaded, and torch.set_num_threads does not change
        # it. By default it spins one thread per core: 3 ranks on 2 cores, 4 times slower.
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
        if not config.has_own_code:
            defer_meta_kernels()
        # Import torch only now, for that reason, and because a mistyped option need not wait 1.5 s for it.
        from torch.distributed.elastic.multiprocessing.errors import record

        defer_compiler()
        record(_begin)(config)  # a failure also goes to $TORCHELASTIC_ERROR_FILE
    except ModuleNotFoundError as error:
        there = (error.name or "").partition(".")[0] in IN_IMAGE
        hint = ": it is in the node image" if there else ""
        print(f"node.train: error: {error}{hint}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    except OptionError as error:
        print(f"node.train: error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None


if __name__ == "__main__":
    main()
