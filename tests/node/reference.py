"""Algorithms as their papers state them: all replicas in one process, averages computed by hand.

Slow and simple; the real strategies, which communicate and overlap, are compared with them.
"""

from functools import cache

import torch
from tiny import SAMPLES, drawn_data, small_model
from torch.nn import functional as F  # noqa: N812

from node.dist.flat import flatten, unflatten_into
from node.training.shards import batch_samples


class Replicas:
    """N replicas of the tiny model; `local_step` makes one SGD step of each on its own batch."""

    def __init__(self, count, lr=0.05, batch=8, seed=1):
        torch.set_default_dtype(torch.float64)
        self.count, self.lr, self.batch, self.seed = count, lr, batch, seed
        self.models = []
        for _ in range(count):
            torch.manual_seed(seed)
            self.models.append(small_model())
        self.data = drawn_data()

    def local_step(self, step):
        for rank, model in enumerate(self.models):
            samples = batch_samples(SAMPLES, self.seed, step, rank, self.count, self.batch)
            model.zero_grad()
            F.cross_entropy(model(self.data[0][samples]), self.data[1][samples]).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= self.lr * p.grad

    def get(self):
        """The parameters of all replicas, shape (replicas, parameters)."""
        return torch.stack([flatten(list(model.parameters())) for model in self.models])

    def set(self, rows):
        for model, row in zip(self.models, rows, strict=True):
            unflatten_into(row, list(model.parameters()))


class Nesterov:
    """theta <- theta - lr (d + mu m), where m <- mu m + d."""

    def __init__(self, lr=0.7, mu=0.9):
        self.lr, self.mu, self.m = lr, mu, 0.0

    def __call__(self, theta, d):
        self.m = self.mu * self.m + d
        return theta - self.lr * (d + self.mu * self.m)


def diloco(ranks, count, steps, H):  # noqa: N803
    """Algorithm 1 of DiLoCo."""
    replicas, outer = Replicas(count), Nesterov()
    theta = replicas.get()[0]
    for step in range(1, steps + 1):
        replicas.local_step(step)
        if step % H == 0:
            theta = outer(theta, (theta - replicas.get()).mean(0))
            replicas.set([theta] * count)
    return theta.tolist()


def fedadam(ranks, count, steps, H, lr):  # noqa: N803
    """Algorithm 2 of Adaptive Federated Optimization, its FedAdam, with all clients in each round."""
    replicas = Replicas(count)
    tau, beta_1, beta_2 = 1e-3, 0.9, 0.99
    x = replicas.get()[0]
    m, v = torch.zeros_like(x), torch.full_like(x, tau**2)
    for step in range(1, steps + 1):
        replicas.local_step(step)
        if step % H == 0:
            delta = (replicas.get() - x).mean(0)
            m = beta_1 * m + (1 - beta_1) * delta
            v = beta_2 * v + (1 - beta_2) * delta**2
            x = x + lr * m / (v.sqrt() + tau)
            replicas.set([x] * count)
    return x.tolist()


def localsgd(ranks, count, steps, together, H):  # noqa: N803
    """Algorithm 1 of post-local SGD: minibatch SGD first, then local SGD with H local steps."""
    replicas = Replicas(count)
    for step in range(1, steps + 1):
        replicas.local_step(step)
        if step <= together or (step - together) % H == 0:
            replicas.set([replicas.get().mean(0)] * count)
    return replicas.get().tolist()


def streaming(ranks, count, steps, H, fragments, tau, alpha):  # noqa: N803
    """Algorithm 2 of Streaming DiLoCo; a fragment's outer step is at a multiple of H/fragments."""
    replicas = Replicas(count)
    theta = replicas.get()[0]
    outers = [Nesterov() for _ in range(fragments)]
    places = torch.arange(len(theta)).tensor_split(fragments)
    every, sent = H // fragments, {}
    for step in range(1, steps + 1):
        replicas.local_step(step)
        if (step + tau) % every == 0:
            sent[step + tau] = (theta - replicas.get()).mean(0)
        if step % every == 0:
            f = (step // every - 1) % fragments
            at = places[f]
            theta[at] = outers[f](theta[at], sent[step][at])
            rows = replicas.get()
            rows[:, at] = alpha * rows[:, at] + (1 - alpha) * theta[at]
            replicas.set(rows)
    return replicas.get().tolist()


def eager(ranks, count, steps, H):  # noqa: N803
    """Eager updates: a replica's own part of the mean now, that of the others one round later."""
    replicas = Replicas(count)
    theta = replicas.get()
    outers = [Nesterov() for _ in range(count)]
    before = torch.zeros_like(theta)
    for step in range(1, steps + 1):
        replicas.local_step(step)
        if step % H == 0:
            delta = theta - replicas.get()
            for i in range(count):
                others = sum(before[j] for j in range(count) if j != i)
                theta[i] = outers[i](theta[i], (delta[i] + others) / count)
            before = delta
            replicas.set(theta)
    return theta.tolist()


def gossip(ranks, count, steps, matrix):
    """D-PSGD: theta <- W theta after each local step; W has one row per receiver."""
    replicas = Replicas(count)
    for step in range(1, steps + 1):
        replicas.local_step(step)
        replicas.set(torch.tensor(matrix) @ replicas.get())
    return replicas.get().tolist()


def push_sum(ranks, count, steps, matrix):
    """SGP: x <- P (x + local step), w <- P w, theta = x / w; the columns of P sum to 1."""
    replicas, matrix = Replicas(count), torch.tensor(matrix)
    x, w = replicas.get(), torch.ones(count)
    for step in range(1, steps + 1):
        before = replicas.get()
        replicas.local_step(step)
        x, w = matrix @ (x + replicas.get() - before), matrix @ w
        replicas.set(x / w.unsqueeze(1))
    return replicas.get().tolist()


def powersgd(ranks, count, steps, rank):
    """Algorithms 1 and 2 of PowerSGD, on the only matrix that is worth compressing at this rank."""
    replicas = Replicas(count)
    generator = torch.Generator().manual_seed(1)
    error, q = torch.zeros(count, 24, 144), torch.randn(144, rank, generator=generator)
    for step in range(1, steps + 1):
        before = replicas.get()
        replicas.local_step(step)
        gradients = (before - replicas.get()) / replicas.lr
        mean = gradients.mean(0)
        at = slice(40, 40 + 24 * 144)
        m = gradients[:, at].view(count, 24, 144) + error
        p = torch.linalg.qr((m @ q).mean(0)).Q
        q_of = m.transpose(1, 2) @ p
        error = m - p @ q_of.transpose(1, 2)
        q = q_of.mean(0)
        mean[at] = (p @ q.T).reshape(-1)
        replicas.set([before[0] - replicas.lr * mean] * count)
    return replicas.get()[0].tolist()


def demo(ranks, count, rates, decay, topk, clip=None):
    """DeMo's reference code with every parameter as one chunk, by explicit cosine sums.

    The momentum accumulates the gradient times the step's learning rate (from `rates`); with `clip`, the gradient is
    first scaled down to that norm if it is longer.
    """
    replicas = Replicas(count)
    shapes = [p.shape for p in replicas.models[0].parameters()]
    momenta = [[torch.zeros(as_matrix(s)) for s in shapes] for _ in range(count)]
    for step, lr in enumerate(rates, 1):
        before = replicas.get()
        replicas.local_step(step)
        sums = [torch.zeros(as_matrix(s)) for s in shapes]
        counts = [torch.zeros(as_matrix(s)) for s in shapes]
        for model, mine in zip(replicas.models, momenta, strict=True):
            length = flatten([p.grad for p in model.parameters()]).norm()
            shorter = min(1.0, clip / length) if clip else 1.0
            for n, parameter in enumerate(model.parameters()):
                own = shorter * parameter.grad.reshape(mine[n].shape)
                mine[n] = decay * mine[n] + lr * own
                waves = dct(mine[n].shape[0]) @ mine[n] @ dct(mine[n].shape[1]).T
                kept = waves.abs().flatten().topk(min(topk, waves.numel())).indices
                mask = torch.zeros(waves.numel()).index_fill_(0, kept, 1.0).view_as(waves)
                sums[n] += waves * mask
                counts[n] += mask
                mine[n] -= dct(mine[n].shape[0]).T @ (waves * mask) @ dct(mine[n].shape[1])
        mean = [s / c.clamp_min(1) for s, c in zip(sums, counts, strict=True)]
        back = [dct(w.shape[0]).T @ w @ dct(w.shape[1]) for w in mean]
        replicas.set([before[0] - lr * flatten(back).sign()] * count)
    return replicas.get()[0].tolist()


def as_matrix(shape):
    return (shape[0], shape.numel() // shape[0]) if len(shape) > 1 else (1, shape[0])


@cache
def dct(size):
    rows = [
        [torch.cos(torch.tensor(torch.pi * (2 * n + 1) * k / (2 * size))) for n in range(size)]
        for k in range(size)
    ]
    waves = torch.tensor(rows) * (2 / size) ** 0.5
    waves[0] *= 0.5**0.5
    return waves
