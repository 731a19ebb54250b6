"""A strategy's state as plain values for a checkpoint, and back.

The state is all attributes except options, what the loop sets, and what the class names in `of_this_run`: tensors,
numbers, strings, enumerations, collections of them, generators, anything with a state_dict, and objects with such
attributes. Parts of the run (the model, its parameters, the optimiser) are written as their numbers, also where they
are keys. So a strategy needs no code for checkpoints.
"""

import dataclasses
import operator
import random
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from node.base.options import OptionError
from node.dist.pending import Pending
from node.strategies.base import Strategy

Frozen = tuple[str, Any]
LIVE: Frozen = ("live", None)  # stays as setup made it
PLAIN = (type(None), bool, int, float, str, bytes, torch.Size, torch.dtype)
SEQUENCES: dict[str, type[Any]] = {t.__name__: t for t in (list, tuple, set, frozenset)}
NEED_LIVE = {"live", "generator", "random", "stateful", "object", "items of a kind"}
GIVEN = {"model", "parameters", "optimizer", "comm", "seed", "samples", "accumulating"}


def freeze(strategy: Strategy) -> dict[str, Frozen]:
    """Return the strategy's state by attribute; waits for exchanges in flight.

    Raises:
        OptionError: an attribute cannot be written to a file.
    """
    parts = {id(part): number for number, part in enumerate(_parts(strategy))}
    values = vars(strategy)
    return {n: _freeze(values[n], n, parts, frozenset()) for n in _remembered(strategy)}


def thaw(strategy: Strategy, frozen: dict[str, Frozen]) -> None:
    """Give a strategy, set up as the earlier one was, the state that `freeze` returned.

    Raises:
        OptionError: it is another kind of strategy.
    """
    parts = _parts(strategy)
    for name, value in frozen.items():
        if name in strategy.of_this_run:  # an earlier version wrote it
            continue
        setattr(strategy, name, _thaw(value, name, vars(strategy).get(name), parts))


def _parts(strategy: Strategy) -> list[object]:
    """Return the parts of a run that strategies may refer to, in the same order in every run of the same model."""
    model = strategy.model
    run = (strategy, strategy.comm, strategy.optimizer, model)
    return [*run, *model.parameters(), *model.buffers()]


def _remembered(strategy: Strategy) -> list[str]:
    options = {field.name for field in dataclasses.fields(strategy)}  # type: ignore[arg-type]
    left_out = GIVEN | options | strategy.of_this_run
    return [name for name in vars(strategy) if name not in left_out]


def _freeze(  # noqa: PLR0911
    thing: Any,  # noqa: ANN401
    place: str,
    parts: Mapping[int, int],
    within: frozenset[int],
) -> Frozen:
    """Return a value as plain ones; `parts`: numbers of the run's by identity, `within`: the objects around it."""
    if id(thing) in parts:
        return "part", parts[id(thing)]
    if id(thing) in within or isinstance(thing, type):  # a cycle of references; a class
        return LIVE
    if _is_plain(thing):
        return "plain", thing
    if isinstance(thing, Enum) and _is_plain(thing.value):
        return "enum", (type(thing).__module__, type(thing).__qualname__, thing.value)
    if isinstance(thing, torch.device):
        return "device", str(thing)
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
        return type(thing).__name__, [
            _freeze(part, f"{place}[{n}]", parts, within) for n, part in enumerate(thing)
        ]
    if isinstance(thing, dict):
        return "items" if type(thing) is dict else "items of a kind", [
            (_freeze_key(key, place, parts), _freeze(part, f"{place}[{key}]", parts, within))
            for key, part in thing.items()
        ]
    if callable(thing) or not hasattr(thing, "__dict__"):
        raise _no_file(f"the strategy's {place}", thing)
    within |= {id(thing)}
    return "object", {
        name: _freeze(part, f"{place}.{name}", parts, within) for name, part in vars(thing).items()
    }


def _freeze_key(key: Any, place: str, parts: Mapping[int, int]) -> Frozen:  # noqa: ANN401
    if id(key) in parts:
        return "part", parts[id(key)]
    if _is_plain(key) or (type(key) is tuple and all(map(_is_plain, key))):
        return "plain", key
    raise _no_file(f"a key of the strategy's {place}", key)


def _is_plain(thing: object) -> bool:
    """Return whether torch.load reads it with weights_only: no subclasses, which numbers of numpy are."""
    return type(thing) in PLAIN


def _no_file(what: str, thing: object) -> OptionError:
    return OptionError(f"--checkpoint-every: {what} is a {type(thing).__name__}: it has no file")


def _thaw(frozen: Frozen, place: str, live: Any, parts: list[object]) -> Any:  # noqa: ANN401, PLR0911
    """Return the value; `live` is what setup made in its place, None if nothing."""
    kind, value = frozen
    if kind in NEED_LIVE and live is None:
        raise OptionError(f"--resume: this strategy has no {place} after setup")
    if kind == "live":
        return live
    if kind == "part":
        return parts[value]
    if kind == "tensor" and isinstance(live, nn.Parameter):
        live.data = value  # the same object: its optimiser holds it
    elif kind in ("plain", "tensor"):
        return value
    elif kind == "enum":
        return _thaw_enum(*value)
    elif kind == "device":  # the run may be on another one than before
        return live or torch.device(value)
    elif kind == "under way":
        return Pending(lambda: value)
    elif kind == "generator":
        live.set_state(value.cpu())
    elif kind == "random":
        live.setstate(value)
    elif kind == "stateful":
        live.load_state_dict(value)
    elif kind in ("items", "items of a kind"):
        return _thaw_items(value, place, live, parts)
    elif kind == "dict":  # of a checkpoint of an earlier version
        return _thaw_items([(("plain", k), part) for k, part in value.items()], place, live, parts)
    elif kind == "object":
        for name, part in value.items():
            setattr(live, name, _thaw(part, f"{place}.{name}", getattr(live, name, None), parts))
    else:
        some = [_thaw(part, f"{place}[{n}]", _of(live, n), parts) for n, part in enumerate(value)]
        return SEQUENCES[kind](some)
    return live


def _thaw_items(
    items: list[tuple[Frozen, Frozen]],
    place: str,
    live: Any,  # noqa: ANN401
    parts: list[object],
) -> dict[Any, Any]:
    """Return a dict: the one that setup made, filled again, so that one with defaults keeps them; else a new one."""
    keys = [_thaw(key, place, None, parts) for key, _ in items]
    values = [
        _thaw(part, f"{place}[{key}]", _of(live, key), parts)
        for key, (_, part) in zip(keys, items, strict=True)
    ]
    into = live if isinstance(live, dict) else {}
    into.clear()
    into.update(zip(keys, values, strict=True))
    return into


def _thaw_enum(module: str, name: str, value: Any) -> Enum:  # noqa: ANN401
    """Return the member of an enumeration; a file may name any class, but nothing else is called."""
    try:
        cls = operator.attrgetter(name)(sys.modules[module])
        if isinstance(cls, type) and issubclass(cls, Enum):
            return cls(value)
    except (KeyError, AttributeError, ValueError):
        pass
    raise OptionError(f"--resume: there is no {value!r} of {module}.{name} any more")


def _of(live: Any, key: Any) -> Any:  # noqa: ANN401
    """Return the item of a collection that setup made; None if there is none."""
    if isinstance(live, dict):
        return live.get(key)
    try:
        return live[key]
    except (TypeError, LookupError):
        return None
