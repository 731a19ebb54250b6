"""A strategy's state as plain values for a checkpoint, and back.

Everything is kept that it has in attributes and is not an option, nor the model's, nor what the
loop gave it: tensors, numbers, texts, collections of them, generators, whatever has a state_dict,
and objects that have such things in attributes. So a strategy need not know of checkpoints.
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
LIVE: Frozen = ("live", None)  # is what it is after setup
PLAIN = (type(None), bool, int, float, str, bytes)
CONSTANT = (torch.Size, torch.dtype, torch.device, type)
SEQUENCES: dict[str, type[Any]] = {t.__name__: t for t in (list, tuple, set, frozenset)}
GIVEN = {"model", "parameters", "optimizer", "comm", "seed", "samples", "accumulating"}


def freeze(strategy: Strategy) -> dict[str, Frozen]:
    """What it remembers, by attribute. What it has under way is waited for.

    Raises:
        OptionError: it remembers something that has no place in a file.
    """
    model = [strategy.model, *strategy.model.parameters(), *strategy.model.buffers()]
    live = {id(thing) for thing in (strategy, strategy.comm, strategy.optimizer, *model)}
    return {name: _freeze(vars(strategy)[name], name, live) for name in _remembered(strategy)}


def thaw(strategy: Strategy, frozen: dict[str, Frozen]) -> None:
    """Let a strategy, set up as the other was, remember what `freeze` has made of that.

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
    live = live | {id(thing)}  # which ends circles
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
        live.data = value  # it stays the one that its optimiser moves
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
    """What a collection that setup made has there, if any."""
    try:
        return live[key]
    except (TypeError, LookupError):
        return None
