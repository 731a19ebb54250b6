"""EXO Gym's API on gradwire's ranks and links: a script changes its import and names the backend.

    from node.exogym import DiLoCoStrategy, OptimSpec, Trainer

docs/from-exogym.md shows a script before and after, and the differences.

Reading order: `strategies` (names and arguments), `trainer` (Trainer.fit), `fit_flags` (its arguments as flags),
`fit_order` (the order to the ranks), `local` (ranks on this machine), `on_cluster` (ranks on nodes), `script_rank`
(runs the script again, as a rank), `same_data` (compares datasets).
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
