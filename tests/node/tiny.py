"""A small model on random data, trained with one strategy on the ranks of a pool: milliseconds per run.

The loop is node.train's and nothing else, so that a test sees each rank from inside.
"""

import io
import re
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

from node.accounting.metrics import Clock
from node.base.options import parse_settings
from node.dist.comm import Comm
from node.strategies import strategy_class
from node.training.optim import start_clipping
from node.training.shards import batch_samples
from node.training.strategy_state import freeze, thaw

SAMPLES = 480
SENT_ON_LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def small_model():
    """Return a convolution and two linear layers: parameters of all kinds, 3,669 in all."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 24), nn.ReLU(), nn.Linear(24, 5)
    )


def wide_model():
    """Return one layer of 1 MB in single precision: messages so long that headers hardly count."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3840), nn.ReLU(), nn.Linear(3840, 5))


MODELS = {"small": small_model, "wide": wide_model}


def drawn_data():
    """Return pictures of 8 x 8, and the classes that a random linear map gives them."""
    generator = torch.Generator().manual_seed(7)
    pictures = torch.randn(SAMPLES, 1, 8, 8, generator=generator)
    teacher = torch.randn(64, 5, generator=generator)
    return pictures, (pictures.flatten(1) @ teacher).argmax(1)


def train(
    ranks,
    strategy,
    settings="",
    *,
    steps=6,
    batch=8,
    optimizer="sgd",
    lr=0.05,
    rates=(),
    clip=0.0,
    momentum=0.0,
    seed=1,
    model="small",
    dtype="float64",
    same_data=False,
    own_samples=None,
    look=None,
    stop_after=None,
    count=False,
):
    """Train; return what this rank saw, as plain values.

    `settings` are options, `KEY=VALUE KEY=VALUE`. With `same_data` all ranks get rank 0's samples; `own_samples` is the
    number that each rank reports as its own, by default its batch size. `rates` has the learning rate of each step, and
    so sets the number of steps; `clip` is `--clip-norm`. The results of `look`, called with strategy, Comm and step
    after each backward pass, are returned. With `stop_after` all state is written to a file after that step, and
    training continues from it in new objects. With `count` the bytes on the wire are returned, but no
    parameters, whose many numbers take longer than the training.
    """
    torch.set_default_dtype(getattr(torch, dtype))
    torch.manual_seed(seed)
    pictures, classes = drawn_data()
    comm = Comm(ranks, Clock(time.perf_counter()))

    def assemble():
        net = MODELS[model]()
        inner = make_optimizer(optimizer, list(net.parameters()), lr, momentum)
        cls = strategy_class(strategy)
        chosen = cls(**parse_settings(strategy, cls, settings.split()))
        chosen.samples = own_samples[comm.rank] if own_samples else batch
        chosen.setup(net, inner, comm, seed)
        return net, inner, chosen, start_clipping(clip, chosen)

    net, inner, chosen, clip_own = assemble()
    steps = len(rates) or steps
    losses, sent, seen = [], [], []
    if count:
        first = _loopback_bytes(comm)
        wire = _loopback_bytes(comm)
        meeting = wire - first  # the cost of this meeting, which happens once more at the end
    for step in range(1, steps + 1):
        before = comm.sent_bytes["train"]
        rank = 0 if same_data else comm.rank
        samples = batch_samples(SAMPLES, seed, step, rank, comm.world_size, batch)
        loss = F.cross_entropy(net(pictures[samples]), classes[samples])
        inner.zero_grad()
        loss.backward()
        if look:
            seen.append(look(chosen, comm, step))
        if rates:
            inner.param_groups[0]["lr"] = rates[step - 1]
        clip_own()
        chosen.step(step)
        if step == steps:
            chosen.finish(step)
        losses.append(loss.item())
        if step == stop_after:
            file = save(net, inner, chosen)
            net, inner, chosen, clip_own = assemble()
            load(file, net, inner, chosen)
        sent.append(comm.sent_bytes["train"] - before)
    told = {"losses": losses, "sent": sent, "collectives": comm.collectives, "seen": seen}
    if count:
        return told | {"wire": _loopback_bytes(comm) - wire - meeting}
    with chosen.outer_model():
        outer = chosen.flat_parameters().tolist()
    return told | {"parameters": chosen.flat_parameters().tolist(), "outer": outer}


def save(net, inner, chosen):
    """Return a file with the state that a checkpoint has of these."""
    file = io.BytesIO()
    torch.save([net.state_dict(), inner.state_dict(), freeze(chosen)], file)
    file.seek(0)
    return file


def load(file, net, inner, chosen):
    """Load the state into objects that are set up in the same way."""
    of_net, of_inner, of_chosen = torch.load(file, weights_only=True)
    net.load_state_dict(of_net)
    inner.load_state_dict(of_inner)
    thaw(chosen, of_chosen)


def make_optimizer(name, parameters, lr, momentum=0.0):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr, momentum)
    return torch.optim.AdamW(parameters, lr)


def _loopback_bytes(comm):
    """Return the bytes that all processes here have sent so far, without retransmissions; all ranks meet here.

    TCP retransmits what is not acknowledged in time, even on a loopback that loses nothing, if CPUs are busy.
    """
    if comm.world_size == 1:
        return 0
    dist.barrier()
    time.sleep(0.02)  # time for acknowledgements
    sent = int(SENT_ON_LOOPBACK.read_text()) - (_sent_again() if comm.rank == 0 else 0)
    dist.barrier()  # no rank continues before all have read
    return sent


def _sent_again():
    """Return the bytes that all current connections have retransmitted."""
    told = subprocess.run(["ss", "-tinH"], capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"bytes_retrans:(\d+)", told)))
