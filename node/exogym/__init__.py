"""EXO Gym's API on gradwire's ranks and links: a script changes its import and names the backend.

    from node.exogym import DiLoCoStrategy, OptimSpec, Trainer

docs/from-exogym.md shows a script before and after, and the differences.
"""

from node.base.options import OptionError
from node.exogym.strategies import (
    Chosen,
    DeMoStrategy,
    DiLoCoStrategy,
    FedAvgStrategy,
    OptimSpec,
    SimpleReduceStrategy,
    SPARTADiLoCoStrategy,
    SPARTAStrategy,
    own_strategy,
)
from node.exogym.trainer import Trainer

__all__ = [
    "Chosen",
    "DeMoStrategy",
    "DiLoCoStrategy",
    "FedAvgStrategy",
    "OptimSpec",
    "OptionError",
    "SPARTADiLoCoStrategy",
    "SPARTAStrategy",
    "SimpleReduceStrategy",
    "Trainer",
    "own_strategy",
]
