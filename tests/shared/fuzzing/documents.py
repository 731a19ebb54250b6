"""Makes a valid document of each type in protocol/ from its annotations alone."""

import types
from typing import Annotated, Union, get_args, get_origin

from protocol.reader import Bounds, Check, FormatError, ReadBy

CANDIDATES = (
    *(
        "node1",
        "10.77.0.2",
        "02:67:77:00:00:02",
        "netem",
        "nfqueue",
        "normal",
        "R",
        "test_accuracy",
    ),
    *("all_reduce", "train", "star", "auto", "x"),
    *(1, 2, 100, 1500, 0, 0.5, 1.0, 1e6, True, False),
    dict.fromkeys(("mean", "median", "p95", "max"), 1.0),
    {"seed": 1},
    dict.fromkeys(("connections", "lives", "steps", "pieces", "received_bytes"), 1),
)


def example(kind):
    """Return the JSON value of a document of this type; lists and mappings have one entry.

    Raises:
        LookupError: no candidate passes its checks.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _checked(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return example(next(one for one in arguments if one is not type(None)))
    if origin is list:
        return [example(arguments[0])]
    if origin is tuple:
        return [example(one) for one in arguments if one is not Ellipsis]
    if origin is dict:
        return {str(example(arguments[0])): example(arguments[1])}
    if hasattr(kind, "_fields"):
        return {name: example(kind.__annotations__[name]) for name in kind._fields}
    return {bool: True, int: 1, float: 1.5, str: "node1", object: {"steps": 5}}[kind]


def _checked(kind, checks):
    """Return the first candidate that passes all checks, with the type's own example tried first."""
    readers = [check.reader for check in checks if isinstance(check, ReadBy)]
    own = () if readers else (example(kind),)
    for one in (*own, *CANDIDATES):
        if (readers or type(one) is type(own[0])) and _holds(one, readers, checks):
            return one
    raise LookupError(f"no example of {kind} with {checks}")


def _holds(one, readers, checks):
    try:
        found = readers[0](one) if readers else one
    except FormatError:
        return False
    return all(
        check.low <= found <= check.high if isinstance(check, Bounds) else check.holds(found)
        for check in checks
        if isinstance(check, Bounds | Check)
    )
