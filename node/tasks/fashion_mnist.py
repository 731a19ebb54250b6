"""Fashion-MNIST (Xiao et al., 2017, arXiv 1708.07747): grey pictures of clothes, 10 classes.

60,000 pictures to train on and 10,000 to test, 28 x 28 bytes each.
"""

import gzip
import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from node.base.options import OptionError
from node.tasks.pictures import Pictures

if TYPE_CHECKING:
    from torch import Tensor

# The folder of Debian's package dataset-fashion-mnist; that of torchvision's download, below its root.
DEBIAN_DIR = Path("/usr/share/datasets/fashion-mnist")
DOWNLOAD_DIR = Path("FashionMNIST/raw")
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


@dataclass
class FashionMnist(Pictures):
    """A small convolutional net on pictures of clothes."""

    mean, std = (0.2860,), (0.3530,)  # computed from the files

    def read(self, data_dir: Path | None, *, train: bool) -> "tuple[Tensor, Tensor]":
        """Return pictures (number, 1, 28, 28), uint8, and their classes, int64."""
        folder = find_data(data_dir)
        images, labels = (TRAIN_IMAGES, TRAIN_LABELS) if train else (TEST_IMAGES, TEST_LABELS)
        return read_idx(folder / images).unsqueeze(1), read_idx(folder / labels).long()


def find_data(data_dir: Path | None) -> Path:
    """Return the folder with the four IDX files.

    Raises:
        OptionError: there is none; the message says how to get them.
    """
    places = (
        [data_dir, data_dir / DOWNLOAD_DIR] if data_dir else [DEBIAN_DIR, "data" / DOWNLOAD_DIR]
    )
    files = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
    for place in places:
        if all((place / name).is_file() or unpacked(place / name).is_file() for name in files):
            return place
    raise OptionError(
        f"no Fashion-MNIST in {' or '.join(str(p) for p in places)}: apt-get install "
        "dataset-fashion-mnist, or python -c 'from torchvision.datasets import FashionMNIST as F; "
        'F("data", download=True)\''
    )


def unpacked(path: Path) -> Path:
    """Return the path of the same file without gzip: in the node image, and beside torchvision's downloads."""
    return path.with_suffix("")


def read_idx(path: Path) -> "Tensor":
    """Read an IDX file of bytes, gzipped or unpacked: 0 0 8 ndim, then ndim big-endian sizes, then the data.

    Returns:
        A tensor of uint8 in the shape that the file names.

    Raises:
        OptionError: the file is damaged or of another kind.
    """
    import torch

    path = unpacked(path) if unpacked(path).is_file() else path
    try:
        data = _read(path)
        if data[:3] != b"\0\0\x08":
            raise OptionError(f"{path} is not an IDX file of bytes")
        start = 4 + 4 * data[3]
        shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
        return torch.frombuffer(data, dtype=torch.uint8, offset=start).reshape(shape)
    except OptionError:
        raise
    except (OSError, EOFError, zlib.error, IndexError, ValueError, RuntimeError) as error:
        raise OptionError(f"{path} is damaged: {error}") from None


def _read(path: Path) -> mmap.mmap | bytearray:
    """Return the contents in writable memory, as torch wants it.

    A file without gzip is mapped: ranks share its 47 MB with one another, and each saves half a second of unpacking.
    """
    if path.suffix != ".gz":
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return bytearray(gzip.decompress(path.read_bytes()))
