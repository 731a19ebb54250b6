"""Training strategies by name. A new one is a file here (see base.py) and a line in STRATEGIES."""

import importlib

from node.options import unknown
from node.strategies.base import Strategy

STRATEGIES = {
    "ddp": "node.strategies.ddp:DDP",
    "fedavg": "node.strategies.fedavg:FedAvg",
}


def strategy_class(name: str) -> type[Strategy]:
    """The class of a strategy; only its own module is imported.

    Raises:
        OptionError: there is no strategy of this name.
    """
    if name not in STRATEGIES:
        raise unknown("strategy", name, STRATEGIES)
    module, _, attribute = STRATEGIES[name].partition(":")
    cls: type[Strategy] = getattr(importlib.import_module(module), attribute)
    return cls
