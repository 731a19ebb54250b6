"""Plays whole episodes by the most likely actions."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from node.rl.environments import Environments
from node.rl.policy import ActorCritic

if TYPE_CHECKING:
    import gymnasium

EVAL_ENVIRONMENTS = 20
EVAL_SEED = 1_000_000_007  # not a seed of training


def evaluate(
    model: ActorCritic,
    make: "Callable[[], gymnasium.Env]",
    episodes: int,
    seed: int,
    device: torch.device,
) -> dict[str, float]:
    """Return `test_return` and `test_length`: means over episodes of environments that training never sees."""
    number = min(episodes, EVAL_ENVIRONMENTS)
    environments = Environments(make, range(number), seed + EVAL_SEED)
    ended = play(model, environments, episodes, device)
    environments.close()
    gained, lengths = zip(*ended, strict=True)
    return {"test_return": sum(gained) / len(ended), "test_length": sum(lengths) / len(ended)}


@torch.no_grad()
def play(
    model: ActorCritic, environments: Environments, episodes: int, device: torch.device
) -> list[tuple[float, int]]:
    """Play a number of episodes.

    Each environment plays a fixed share of them, even if another is faster: the first episodes to end are the short
    ones.

    Args:
        model: on `device`.
        environments: reset first.
        episodes: at least as many as there are environments.
        device: the model's.

    Returns:
        (sum of rewards, steps) of each.
    """
    obs = torch.from_numpy(environments.reset())
    number = len(obs)
    left = [episodes // number + (n < episodes % number) for n in range(number)]
    gained, lengths = torch.zeros(number), torch.zeros(number, dtype=torch.int64)
    ended: list[tuple[float, int]] = []
    while any(left):
        step = environments.step(model.best(model.see(obs.to(device))).cpu().numpy())
        obs = torch.from_numpy(step.obs)
        gained += torch.from_numpy(step.rewards)
        lengths += 1
        for n in (step.terminated | step.truncated).nonzero()[0].tolist():
            if left[n]:
                ended.append((float(gained[n]), int(lengths[n])))
                left[n] -= 1
            gained[n], lengths[n] = 0.0, 0
    return ended
