"""DHC's network: agents see, remember, talk to who is near, and value their actions.

All agents of an episode, and episodes of a batch, go through it together. Who has nobody to hear keeps its memory as
it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from node.mapf.observation import PLANES, RADIUS

ACTIONS = 5
ROUNDS = 2  # of communication


@dataclass(frozen=True)
class Size:
    """How large a network is.

    Attributes:
        channels: of its convolutions.
        blocks: residual ones, of two convolutions each.
        reduced: channels that are left of them.
        hidden: numbers that an agent remembers.
        heads: of attention.
        key: numbers of a key, a head.
    """

    channels: int
    blocks: int
    reduced: int
    hidden: int
    heads: int
    key: int


SIZES = {
    "small": Size(channels=16, blocks=0, reduced=8, hidden=64, heads=2, key=16),
    "full": Size(
        channels=128, blocks=3, reduced=16, hidden=256, heads=2, key=64
    ),  # DHC's: 2.05 million parameters
}


class Network(nn.Module):
    """Q values of what each agent may do.

    Args:
        size: of SIZES.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        width = 2 * RADIUS + 1 - 2  # one convolution without padding
        blocks = [Residual(size.channels) for _ in range(size.blocks)]
        self.see = nn.Sequential(
            nn.Conv2d(PLANES, size.channels, 3),
            nn.ReLU(),
            *blocks,
            nn.Conv2d(size.channels, size.reduced, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.remember = nn.GRUCell(size.reduced * width * width, size.hidden)
        self.talk = Attention(size)
        self.listen = nn.GRUCell(size.key, size.hidden)
        self.advantage = nn.Linear(size.hidden, ACTIONS)
        self.state_value = nn.Linear(size.hidden, 1)

    def step(self, obs: Tensor, hidden: Tensor, hears: Tensor) -> Tensor:
        """One moment of several episodes.

        Args:
            obs: float, shape (batch, agents, planes, width, width).
            hidden: what they remember, shape (batch, agents, hidden).
            hears: who hears whom, bool, shape (batch, agents, agents).

        Returns:
            What they remember now, shape (batch, agents, hidden).
        """
        return self.communicate(self.recall(self.see(obs.flatten(0, 1)), hidden), hears)

    def recall(self, features: Tensor, hidden: Tensor) -> Tensor:
        """Memory with what was seen added: features of shape (batch · agents, …)."""
        recalled: Tensor = self.remember(features, hidden.flatten(0, 1))
        return recalled.view_as(hidden)

    def communicate(self, hidden: Tensor, hears: Tensor) -> Tensor:
        """Memory with what was heard added, in ROUNDS."""
        has_partner = (hears.sum(-1) > 1).unsqueeze(-1)
        for _ in range(ROUNDS):
            told = self.talk(hidden, hears)
            heard = self.listen(told.flatten(0, 1), hidden.flatten(0, 1)).view_as(hidden)
            hidden = torch.where(has_partner, heard, hidden)
        return hidden

    def values(self, hidden: Tensor) -> Tensor:
        """Q values, shape (…, ACTIONS): a duel of advantages and the value of the state."""
        advantages = self.advantage(hidden)
        found: Tensor = self.state_value(hidden) + advantages - advantages.mean(-1, keepdim=True)
        return found

    def first_memory(self, batch: int, agents: int) -> Tensor:
        """What they remember when an episode begins: nothing."""
        return torch.zeros(batch, agents, self.size.hidden, device=self.advantage.weight.device)


class Residual(nn.Module):
    """Two convolutions, and what went in added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Shape (batch, channels, width, width), in and out."""
        return torch.relu(pictures + self.second(torch.relu(self.first(pictures))))


class Attention(nn.Module):
    """Each agent attends to those that it hears, itself among them."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self._heads, self._key = size.heads, size.key
        wide = size.heads * size.key
        self.query, self.key, self.value = (nn.Linear(size.hidden, wide) for _ in range(3))
        self.out = nn.Linear(wide, size.key, bias=False)

    def forward(self, hidden: Tensor, hears: Tensor) -> Tensor:
        """What each is told, (batch, agents, key), of (batch, agents, hidden) and `hears`, (batch, agents, agents)."""
        query, key, value = (
            layer(hidden).unflatten(-1, (self._heads, self._key)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        told = nn.functional.scaled_dot_product_attention(query, key, value, hears.unsqueeze(1))
        mixed: Tensor = self.out(told.transpose(1, 2).flatten(2))
        return mixed
