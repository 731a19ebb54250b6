"""A small GPT on bytes, after nanoGPT (Karpathy, 2022) and GPT-2 (Radford et al., 2019)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

BYTES = 256  # the vocabulary


class Block(nn.Module):
    """Attention, then a two-layer net, each with a residual connection (pre-norm)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, bytes, width) to the same shape."""
        x = x + self.dropout(self.project(self._attend(self.norm1(x))))
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.norm2(x)))))

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        # (3, batch, heads, bytes, width / heads)
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, width)


class Gpt(nn.Module):
    """A GPT that scores the next byte after every byte.

    Args:
        layers: number of blocks.
        width: size of the embedding of a byte.
        heads: heads of each attention; divides width.
        context: largest number of bytes seen at once.
        dropout: share of activations dropped.
    """

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, width)
        self.place = nn.Parameter(torch.zeros(context, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                # As in GPT-2: the 2 · layers projections onto the residual stream start smaller.
                added = name.endswith(("project.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers if added else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, text: Tensor) -> Tensor:
        """Map bytes (batch, length), int64, to scores (batch, length, 256)."""
        x = self.dropout(self.embed(text) + self.place[: text.shape[1]])
        return self.head(self.norm(self.blocks(x)))
