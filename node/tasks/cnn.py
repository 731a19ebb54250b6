"""The classic small convolutional net."""

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Cnn(nn.Module):
    """The classic MNIST net: two 3 x 3 convolutions, a pooling, two linear layers.

    It has 1,199,882 parameters, 4.8 MB, for grey pictures of 28 x 28.

    Args:
        dropout: share of activations dropped.
        channels: channels of a picture.
        side: side of a square picture, in pixels.
    """

    def __init__(self, dropout: float, channels: int = 1, side: int = 28) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * ((side - 4) // 2) ** 2, 128)
        self.fc2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (batch, channels, side, side) to class scores (batch, 10)."""
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(self.dropout(x.flatten(1))))
        return self.fc2(self.dropout(x))
