"""The loss of a batch of sequences: n-step targets by a target network, Huber loss, new errors.

The network starts with the actor's memory of `burn_in` steps before a sequence; nothing is learnt from these steps.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from node.mapf.acting import pad, pad_hears
from node.mapf.network import Network
from node.replay.buffer import Draw
from node.replay.targets import n_step_targets


class Piece(NamedTuple):
    """The part of its episode that a sequence needs: steps and moments, counted within the episode.

    Attributes:
        first: the moment from which memory is brought up to date.
        begin: the first step that is learnt.
        end: the step after the last one that is learnt.
        last: the last moment whose value a target needs.
    """

    first: int
    begin: int
    end: int
    last: int


class Learnt(NamedTuple):
    """Loss and errors of a batch.

    Attributes:
        loss: shape ().
        errors: absolute errors of each sequence's values from their targets, shape (steps,) each.
    """

    loss: Tensor
    errors: list[np.ndarray]


def td_loss(
    network: Network,
    target: Network,
    draw: Draw,
    *,
    burn_in: int,
    n_steps: int,
    gamma: float,
    first_agent_only: bool,
) -> Learnt:
    """Return the loss and the errors of a batch.

    Args:
        network: the network that is learnt.
        target: the target network, which estimates the value of later moments.
        draw: the sequences.
        burn_in: the most steps before each sequence that only bring memory up to date.
        n_steps: steps of an n-step target.
        gamma: discount.
        first_agent_only: whether only the first agent's values are learnt, as in DHC, or all agents'.
    """
    pieces = [
        Piece(
            max(0, int(begin) - burn_in),
            int(begin),
            int(end),
            min(int(end) + n_steps, episode.length),
        )
        for episode, begin, end in zip(draw.episodes, draw.begins, draw.ends, strict=True)
    ]
    batch = _inputs(network, draw, pieces)
    warm_up = torch.tensor([piece.begin - piece.first for piece in pieces])
    values = _unroll(network, *batch, warm_up)
    with torch.no_grad():
        best = _unroll(target, *batch, warm_up).max(-1).values.cpu().numpy()
    losses, errors = [], []
    for n, (episode, piece) in enumerate(zip(draw.episodes, pieces, strict=True)):
        agents = 1 if first_agent_only else episode.agents
        steps, moments = (
            slice(piece.begin, piece.last),
            slice(piece.begin - piece.first, piece.last - piece.first + 1),
        )
        ended = bool(episode.ended) and piece.last == episode.length
        wanted = n_step_targets(
            episode.rewards[steps, :agents], best[n, moments, :agents], n_steps, gamma, ended=ended
        )[: piece.end - piece.begin]
        actions = torch.from_numpy(
            episode.actions[piece.begin : piece.end, :agents].astype(np.int64)
        )
        own = values[n, piece.begin - piece.first : piece.end - piece.first, :agents]
        taken = own.gather(-1, actions.to(own.device).unsqueeze(-1)).squeeze(-1)
        error = taken - torch.from_numpy(wanted).to(taken)
        losses.append(torch.nn.functional.huber_loss(error, torch.zeros_like(error)))
        errors.append(error.detach().abs().mean(1).cpu().numpy())
    weights = torch.from_numpy(draw.weights).to(losses[0])
    return Learnt((weights * torch.stack(losses)).mean(), errors)


def _inputs(network: Network, draw: Draw, pieces: list[Piece]) -> tuple[Tensor, Tensor, Tensor]:
    """Return observations (batch, moments, agents, …), which agent hears which, and the sequences' first memory."""
    most = max(episode.agents for episode in draw.episodes)
    length = 1 + max(piece.last - piece.first for piece in pieces)
    device = network.advantage.weight.device
    obs, hears, hidden = [], [], []
    for episode, piece in zip(draw.episodes, pieces, strict=True):
        moments = np.minimum(
            np.arange(piece.first, piece.first + length), piece.last
        )  # pad with the last moment
        obs.append(pad(list(episode.obs[moments]), most))
        hears.append(pad_hears(list(episode.hears[moments]), most))
        hidden.append(episode.hidden[piece.first].astype(np.float32))
    return (
        torch.from_numpy(np.stack(obs)).to(device).float(),
        torch.from_numpy(np.stack(hears)).to(device),
        torch.from_numpy(pad(hidden, most)).to(device),
    )


def _unroll(
    network: Network, obs: Tensor, hears: Tensor, hidden: Tensor, warm_up: Tensor
) -> Tensor:
    """Return the values of all actions at each moment, shape (batch, moments, agents, ACTIONS).

    Nothing is learnt from each sequence's first `warm_up` moments, int64 of shape (batch,): only memory passes.
    """
    features = network.see(obs.flatten(0, 2)).unflatten(0, obs.shape[:3])
    memories = []
    for moment in range(obs.shape[1]):
        hidden = network.recall(features[:, moment].flatten(0, 1), hidden)
        hidden = network.communicate(hidden, hears[:, moment])
        is_warm_up = (moment < warm_up).to(hidden.device)[:, None, None]
        hidden = torch.where(is_warm_up, hidden.detach(), hidden)
        memories.append(hidden)
    return network.values(torch.stack(memories, 1))
