"""A byte-level language model on a text that every node has: Python's standard library.

The text is all of its .py files, ordered by the hashes of their names; one in ten is held out. So the text is the
same on all nodes of an image, and nothing needs to be downloaded. At most `mbyte` of it is read.
"""

import hashlib
import math
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from node.base.options import OptionError, option
from node.tasks.base import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# Layers, width, heads: 0.47, 1.9 and 10.9 million parameters.
SIZES = {"small": (2, 128, 4), "medium": (4, 192, 6), "large": (6, 384, 6)}
# Missing on some machines, or not the same on all.
NOT_READ = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__"}
HELD_OUT_BYTES = 2**16  # a test takes the small model 2 s on one thread
TEST_BATCH = 64


@dataclass
class Language(Task):
    """A byte-level GPT on the source code of Python's standard library."""

    size: str = option(
        "small", "0.47, 1.9 or 10.9 million parameters", choices=("small", "medium", "large")
    )
    context: int = option(64, "bytes per sample", at_least=2)
    dropout: float = option(0.0, "share of activations dropped", at_least=0.0, below=1.0)
    mbyte: float = option(
        4.0, "training text, in 10^6 bytes; at most all there is", above=0.0, at_most=1e6
    )

    def load(self, data_dir: Path | None) -> None:
        """Read the text; `data_dir` is another folder with .py files."""
        folder = data_dir or Path(sysconfig.get_paths()["stdlib"])
        train, held_out = text_files(folder)
        self._train = self._windows(read_text(train, round(self.mbyte * 1e6)), folder)
        self._held_out = self._windows(read_text(held_out, HELD_OUT_BYTES), folder)
        self.train_size = len(self._train)

    def _windows(self, text: bytes, folder: Path) -> "Tensor":
        """Cut the text into samples, uint8, shape (number, context + 1); each shares a byte with the next."""
        import torch

        number = (len(text) - 1) // self.context
        if number < 1:
            raise OptionError(f"{folder} has too little Python code for context={self.context}")
        numbers = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return numbers[: number * self.context + 1].unfold(0, self.context + 1, self.context)

    def fingerprint(self) -> bytes:
        """Return a digest of the text."""
        from node.dist.flat import to_bytes

        return hashlib.sha256(to_bytes([self._train, self._held_out])).digest()

    def make_model(self) -> "nn.Module":
        """Return a `Gpt` of this size."""
        from node.tasks.gpt import Gpt

        return Gpt(*SIZES[self.size], self.context, self.dropout)

    def batch(self, samples: "Tensor", device: "torch.device") -> "Tensor":
        """Return bytes (batch, context + 1), int64."""
        return self._train[samples].to(device).long()

    def loss(self, model: "nn.Module", batch: "Tensor") -> "Tensor":
        """Return the mean cross-entropy of each byte given those before it, in nats."""
        from torch.nn.functional import cross_entropy

        scores = model(batch[:, :-1])
        return cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())

    def evaluate(self, model: "nn.Module", device: "torch.device") -> dict[str, float]:
        """Return `validation_loss` in nats per byte, and the same in bits per byte as `validation_bits`."""
        pieces = self._held_out.split(TEST_BATCH)
        losses = [float(self.loss(model, p.to(device).long())) * len(p) for p in pieces]
        loss = sum(losses) / len(self._held_out)
        return {"validation_loss": loss, "validation_bits": loss / math.log(2)}


def text_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the .py files to train on and the held-out ones, both ordered by the hashes of their names."""
    files = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder)
        # The contents of _sysconfigdata differ between machines.
        if NOT_READ.isdisjoint(name.parts) and not name.name.startswith("_sysconfigdata"):
            files[hashlib.sha256(name.as_posix().encode()).digest()] = path
    ordered = sorted(files)
    held_out = {digest for digest in ordered if digest[-1] % 10 == 0}
    return [files[d] for d in ordered if d not in held_out], [files[d] for d in sorted(held_out)]


def read_text(files: list[Path], limit: int) -> bytes:
    """Return the contents of the files, one after the other, cut to `limit` bytes."""
    text = bytearray()
    for path in files:
        if len(text) >= limit:
            break
        text += path.read_bytes()
    return bytes(text[:limit])
