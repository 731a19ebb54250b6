"""Plays instances to their end with a network's best actions, many at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from node.mapf.acting import lose, pad, pad_hears
from node.mapf.environment import Environment
from node.mapf.network import Network
from node.mapf.world import Instance


class Played(NamedTuple):
    """How one instance ended.

    Attributes:
        solved: whether all agents reached their goals in time.
        steps: steps that were made.
    """

    solved: bool
    steps: int


@torch.no_grad()
def play(
    network: Network,
    instances: Sequence[Instance],
    most_steps: int,
    *,
    comm_loss: float = 0.0,
    seed: int = 0,
) -> list[Played]:
    """Play all instances at once.

    Args:
        network: chooses the actions of all agents.
        instances: instances, whose numbers of agents may differ.
        most_steps: step limit.
        comm_loss: share of the agents' messages that are lost on purpose.
        seed: seed of these losses.
    """
    device = network.advantage.weight.device
    random = np.random.default_rng(seed)
    games = {n: Environment(instance, most_steps) for n, instance in enumerate(instances)}
    memory = {
        n: np.zeros((len(one.positions), network.size.hidden), np.float32)
        for n, one in games.items()
    }
    played: dict[int, Played] = {}
    while games:
        most = max(len(one.positions) for one in games.values())
        seen, hears = zip(*(one.observe() for one in games.values()), strict=True)
        heard = lose(random, pad_hears(hears, most), comm_loss)
        hidden = network.step(
            torch.from_numpy(pad(seen, most)).to(device).float(),
            torch.from_numpy(pad([memory[n] for n in games], most)).to(device),
            torch.from_numpy(heard).to(device),
        )
        actions = network.values(hidden).argmax(-1).cpu().numpy()
        for place, (n, game) in enumerate(list(games.items())):
            agents = len(game.positions)
            memory[n] = hidden[place, :agents].cpu().numpy()
            outcome = game.step(actions[place, :agents])
            if outcome.done or outcome.truncated:
                played[n] = Played(outcome.done, game.steps)
                del games[n]
    return [played[n] for n in range(len(instances))]
