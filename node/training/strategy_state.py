"""A strategy's state as plain values for a checkpoint, and back.

The state is all attributes except options, parts of the model and what the loop sets: tensors, numbers, strings,
collections of them, generators, anything with a state_dict, and objects with such attributes. So a strategy needs no
code for checkpoints.
"""

import dataclasses
import random
from typing import Any

import torch
from torch import Tensor, nn

from node.base.options import OptionError
from node.dist.pending import Pending
from node.strategies.base import Strategy

Frozen = tuple[str, Any]
LIVE: Frozen = ("live", None)  # stays as setup made it
PLAIN = (type(None), bool, int, float, str, bytes)
CONSTANT = (torch.Size, torch.dtype, torch.device, type)
SEQUENCES: dict[str, type[Any]] = {t.__name__: t for t in (list, tuple, set, frozenset)}
GIVEN = {"model", "parameters", "optimizer", "comm", "seed", "samples", "accumulating"}


def freeze(strategy: Strategy) -> dict[str, Frozen]:
    """Return the strategy's state by attribute; waits for exchanges in flight.

    Raises:
        OptionError: an attribute cannot be written to a file.
    """
    model = [strategy.model, *strategy.model.parameters(), *strategy.model.buffers()]
    live = {id(thing) for thing in (strategy, strategy.comm, strategy.optimizer, *model)}
    return {name: _freeze(vars(strategy)[name], name, live) for name in _remembered(strategy)}


def thaw(strategy: Strategy, frozen: dict[str, Frozen]) -> None:
    """Give a strategy, set up as the earlier one was, the state that `freeze` returned.

    Raises:
        OptionError: it is another kind of strategy.
    """
    for name, value in frozen.items():
        setattr(strategy, name, _thaw(value, name, vars(strategy).get(name)))


def _remembered(strategy: Strategy) -> list[str]:
    options = {field.name for field in dataclasses.fields(strategy)}  # type: ignore[arg-type]
    return [name for name in vars(strategy) if name not in GIVEN | options]


def _freeze(thing: Any, place: str, live: set[int]) -> Frozen:  # noqa: ANN401, PLR0911
    if id(thing) in live or isinstance(thing, CONSTANT):
        return LIVE
    if isinstance(thing, PLAIN):
        return "plain", thing
    if isinstance(thing, Tensor):
        return "tensor", thing.detach()
    if isinstance(thing, Pending):
        return "under way", thing()
    if isinstance(thing, torch.Generator):
        return "generator", thing.get_state()
    if isinstance(thing, random.Random):
        return "random", thing.getstate()
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return "stateful", thing.state_dict()
    if type(thing) in SEQUENCES.values():
        parts = [_freeze(part, f"{place}[{n}]", live) for n, part in enumerate(thing)]
        return type(thing).__name__, parts
    if isinstance(thing, dict):
        return "dict", {key: _freeze(part, f"{place}[{key}]", live) for key, part in thing.items()}
    if callable(thing) or not hasattr(thing, "__dict__"):
        kind = type(thing).__name__
        raise OptionError(f"--checkpoint-every: the strategy's {place} is a {kind}: it has no file")
    live = live | {id(thing)}  # ends cycles of references
    return "object", {
        name: _freeze(part, f"{place}.{name}", live) for name, part in vars(thing).items()
    }


def _thaw(frozen: Frozen, place: str, live: Any) -> Any:  # noqa: ANN401, PLR0911
    kind, value = frozen
    if kind in ("generator", "random", "stateful", "object") and live is None:
        raise OptionError(f"--resume: this strategy has no {place} after setup")
    if kind == "live":
        return live
    if kind == "tensor" and isinstance(live, nn.Parameter):
        live.data = value  # the same object: its optimiser holds it
    elif kind in ("plain", "tensor"):
        return value
    elif kind == "under way":
        return Pending(lambda: value)
    elif kind == "generator":
        live.set_state(value.cpu())
    elif kind == "random":
        live.setstate(value)
    elif kind == "stateful":
        live.load_state_dict(value)
    elif kind == "dict":
        return {key: _thaw(part, f"{place}[{key}]", _of(live, key)) for key, part in value.items()}
    elif kind == "object":
        for name, part in value.items():
            setattr(live, name, _thaw(part, f"{place}.{name}", getattr(live, name, None)))
    else:
        parts = [_thaw(part, f"{place}[{n}]", _of(live, n)) for n, part in enumerate(value)]
        return SEQUENCES[kind](parts)
    return live


def _of(live: Any, key: Any) -> Any:  # noqa: ANN401
    """Return the item of a collection that setup made; None if there is none."""
    try:
        return live[key]
    except (TypeError, LookupError):
        return None
