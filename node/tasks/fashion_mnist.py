"""Fashion-MNIST (Xiao et al., 2017, arXiv 1708.07747): grey pictures of clothes, 10 classes.

60,000 pictures to train on and 10,000 to test, 28 x 28 bytes each.
"""

import gzip
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from node.options import OptionError
from node.tasks.base import Task

# Debian's package dataset-fashion-mnist, and where torchvision's download lies under its root.
DEBIAN_DIR = Path("/usr/share/datasets/fashion-mnist")
DOWNLOAD_DIR = Path("FashionMNIST/raw")
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
# Of all training pixels scaled to 0..1, computed from the files.
MEAN, STD = 0.2860, 0.3530
# Small pieces stay in the CPU's cache: 3,800 pictures/s with 200, 2,200 with 500 (one thread).
TEST_BATCH = 200


class FashionMnist(Task):
    """A small convolutional net on pictures of clothes.

    Pictures stay bytes in memory (47 MB) and become floats a batch at a time.
    """

    def __init__(self, data_dir: Path | None, dropout: float) -> None:
        self.dropout = dropout
        self.folder = find_data(data_dir)
        self.images = read_idx(self.folder / TRAIN_IMAGES)
        self.labels = read_idx(self.folder / TRAIN_LABELS).long()
        self.train_size = len(self.images)

    def make_model(self) -> nn.Module:
        """A `Cnn`, in the memory layout that this CPU's convolutions like: 1.25 times faster."""
        return Cnn(self.dropout).to(memory_format=torch.channels_last)

    def batch(self, samples: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Pictures (batch, 1, 28, 28), float, and classes (batch,), int64."""
        return normalise(self.images[samples].to(device)), self.labels[samples].to(device)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross-entropy in nats."""
        pictures, classes = batch
        return F.cross_entropy(model(pictures), classes)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Mean `test_loss` in nats and `test_accuracy`, 0 to 1; the test files are read here."""
        images = read_idx(self.folder / TEST_IMAGES).to(device).split(TEST_BATCH)
        labels = read_idx(self.folder / TEST_LABELS).long().to(device)
        scores = torch.cat([model(normalise(pictures)) for pictures in images])
        return {
            "test_loss": float(F.cross_entropy(scores, labels)),
            "test_accuracy": float((scores.argmax(1) == labels).float().mean()),
        }


class Cnn(nn.Module):
    """The classic MNIST net: two 3 x 3 convolutions, a pooling, two linear layers.

    1,199,882 parameters, 4.8 MB.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.fc2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures (batch, 1, 28, 28) to class scores (batch, 10)."""
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(self.dropout(x.flatten(1))))
        return self.fc2(self.dropout(x))


def normalise(pictures: Tensor) -> Tensor:
    """Bytes (batch, 28, 28) to the default floats (batch, 1, 28, 28), mean 0 and deviation 1 on average."""
    return pictures.unsqueeze(1).to(torch.get_default_dtype()).div_(255).sub_(MEAN).div_(STD)


def find_data(data_dir: Path | None) -> Path:
    """The folder with the four IDX files.

    Raises:
        OptionError: there is none; says how to get them.
    """
    places = (
        [data_dir, data_dir / DOWNLOAD_DIR] if data_dir else [DEBIAN_DIR, "data" / DOWNLOAD_DIR]
    )
    files = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
    for place in places:
        if all((place / name).is_file() for name in files):
            return place
    raise OptionError(
        f"no Fashion-MNIST in {' or '.join(str(p) for p in places)}: apt-get install "
        "dataset-fashion-mnist, or python -c 'from torchvision.datasets import FashionMNIST as F; "
        'F("data", download=True)\''
    )


def read_idx(path: Path) -> Tensor:
    """Read a gzipped IDX file of bytes: 0 0 8 ndim, then ndim big-endian sizes, then the data.

    Returns:
        A tensor of uint8 in the shape that the file names.

    Raises:
        OptionError: the file is damaged or of another kind.
    """
    try:
        # A bytearray, as torch wants memory that may be written to.
        data = bytearray(gzip.decompress(path.read_bytes()))
        if data[:3] != b"\0\0\x08":
            raise OptionError(f"{path} is not an IDX file of bytes")
        start = 4 + 4 * data[3]
        shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
        return torch.frombuffer(data, dtype=torch.uint8, offset=start).reshape(shape)
    except (OSError, EOFError, IndexError, RuntimeError) as error:
        raise OptionError(f"{path} is damaged: {error}") from None
