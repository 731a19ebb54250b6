"""Learns which of four rings a point lies in, with three strategies; docs/from-exogym.md has its EXO Gym form, too.

python examples/rings.py --backend local
python examples/rings.py --backend cluster
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import Dataset, TensorDataset, random_split

from node.exogym import DiLoCoStrategy, OptimSpec, SimpleReduceStrategy, SPARTAStrategy, Trainer


class Rings(nn.Module):
    """Scores of four rings; forward computes the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
        )

    def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Points (batch, 2) and rings (batch,) to the mean cross-entropy."""
        points, rings = batch
        return F.cross_entropy(self.net(points), rings)


def make_data() -> list[Dataset]:
    """4,000 points to train on and 1,000 to test."""
    points = 4 * torch.rand(5000, 2) - 2
    rings = points.norm(dim=1).clamp(max=1.99)
    rings = rings.mul(2).long()
    data = TensorDataset(points, rings)
    return random_split(data, [4000, 1000])


def main() -> None:
    """Train three times, and say how well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="local")
    backend = parser.parse_args().backend
    torch.manual_seed(1)
    train, val = make_data()
    spec = OptimSpec(torch.optim.AdamW, lr=3e-3)
    for strategy in (
        SimpleReduceStrategy(spec),
        DiLoCoStrategy(spec, H=20),
        SPARTAStrategy(spec, p_sparta=0.05),
    ):
        trainer = Trainer(Rings(), train, val)
        model = trainer.fit(
            backend=backend,
            strategy=strategy,
            num_nodes=3,
            max_steps=60,
            batch_size=32,
            val_interval=30,
        )
        with torch.no_grad():
            loss = model(val[:])
            print(f"loss {loss:.3f}")


if __name__ == "__main__":
    main()
