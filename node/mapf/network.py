"""DHC's network: agents see, remember, talk to nearby agents, and value their actions.

All agents of an episode, and all episodes of a batch, go through it together. Communication leaves the memory of an
agent that hears no other unchanged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from node.mapf.observation import PLANES, RADIUS

ACTIONS = 5
ROUNDS = 2  # of communication


@dataclass(frozen=True)
class Size:
    """The size of a network.

    Attributes:
        channels: channels of its convolutions.
        blocks: residual blocks, of two convolutions each.
        reduced: channels after the last convolution.
        hidden: size of an agent's memory.
        heads: attention heads.
        key: size of a key, per head.
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
    """Q values of each agent's actions.

    Args:
        size: one of SIZES.
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
        """Process one moment of several episodes.

        Args:
            obs: float, shape (batch, agents, planes, width, width).
            hidden: the agents' memory, shape (batch, agents, hidden).
            hears: which agent hears which, bool, shape (batch, agents, agents).

        Returns:
            The agents' new memory, shape (batch, agents, hidden).
        """
        return self.communicate(self.recall(self.see(obs.flatten(0, 1)), hidden), hears)

    def recall(self, features: Tensor, hidden: Tensor) -> Tensor:
        """Return memory updated by what was seen: features of shape (batch · agents, …)."""
        recalled: Tensor = self.remember(features, hidden.flatten(0, 1))
        return recalled.view_as(hidden)

    def communicate(self, hidden: Tensor, hears: Tensor) -> Tensor:
        """Return memory updated by what was heard, in ROUNDS rounds."""
        has_partner = (hears.sum(-1) > 1).unsqueeze(-1)
        for _ in range(ROUNDS):
            told = self.talk(hidden, hears)
            heard = self.listen(told.flatten(0, 1), hidden.flatten(0, 1)).view_as(hidden)
            hidden = torch.where(has_partner, heard, hidden)
        return hidden

    def values(self, hidden: Tensor) -> Tensor:
        """Return Q values, shape (…, ACTIONS), from advantages and state value (a duelling network)."""
        advantages = self.advantage(hidden)
        found: Tensor = self.state_value(hidden) + advantages - advantages.mean(-1, keepdim=True)
        return found

    def first_memory(self, batch: int, agents: int) -> Tensor:
        """Return the memory at the start of an episode: zeros."""
        return torch.zeros(batch, agents, self.size.hidden, device=self.advantage.weight.device)


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map shape (batch, channels, width, width) to the same shape."""
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
        """Map memory (batch, agents, hidden) and `hears` (batch, agents, agents) to messages (batch, agents, key)."""
        query, key, value = (
            layer(hidden).unflatten(-1, (self._heads, self._key)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        told = nn.functional.scaled_dot_product_attention(query, key, value, hears.unsqueeze(1))
        mixed: Tensor = self.out(told.transpose(1, 2).flatten(2))
        return mixed
