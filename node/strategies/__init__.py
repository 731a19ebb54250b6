"""Training strategies by name. To add one, write a file here (see `base`) and a line in STRATEGIES.

Reading order: `base` (the interface), `ddp` (averages gradients every step), then any other. Local steps: `localsgd`
(post-local SGD), `fedavg` (federated averaging), `diloco` (outer optimiser), `streaming_diloco` (by fragments),
`eager_diloco` (overlaps a round), with `outer` (parameters that all ranks share). Sparse averages: `sparta` (every
step), `sparta_diloco` (between outer steps), with `masks` (subsets of parameters). Compressed exchanges: `demo`
(decoupled momentum) with `dct` (its compression), `powersgd` (thin matrices) with `lowrank` (its compression).
Neighbours only: `gossip` (averages with them) with `graphs` (who sends to whom).
"""

from node.base.options import OptionError, require_options
from node.base.user_code import load
from node.strategies.base import Strategy

STRATEGIES = {
    "ddp": "node.strategies.ddp:DDP",
    "fedavg": "node.strategies.fedavg:FedAvg",
    "localsgd": "node.strategies.localsgd:LocalSGD",
    "diloco": "node.strategies.diloco:DiLoCo",
    "streaming-diloco": "node.strategies.streaming_diloco:StreamingDiLoCo",
    "eager-diloco": "node.strategies.eager_diloco:EagerDiLoCo",
    "sparta": "node.strategies.sparta:Sparta",
    "sparta-diloco": "node.strategies.sparta_diloco:SpartaDiLoCo",
    "demo": "node.strategies.demo:DeMo",
    "powersgd": "node.strategies.powersgd:PowerSGD",
    "gossip": "node.strategies.gossip:Gossip",
}


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of a strategy; import only its own module.

    Args:
        name: a key of STRATEGIES, or a strategy of the user's own: `./mine.py:Mine`.

    Raises:
        OptionError: there is no such strategy, or the name is not a strategy.
        ModuleNotFoundError: the user's file imports a module that is not installed here.
    """
    cls = load("strategy", name, STRATEGIES)
    if not (isinstance(cls, type) and issubclass(cls, Strategy)):
        raise OptionError(f"{name} is no strategy: derive it from node.strategies.base.Strategy")
    require_options(name, cls)
    return cls
