"""The order that `Trainer.fit` gives to the ranks that it starts: a folder.

`python -m node.exogym.script_rank FOLDER script.py ARGS…` is one rank of it (`--attached` before it: the rank ends when
its standard input does, which the script that called `fit` holds open). Under `cluster.launch --attached --fit FOLDER
-- script.py ARGS…` (attached likewise) the folder goes to `.fit` in the current folder of every node. The rank ends
with 0 when it has trained, 2 after a mistake of the user's (one line on standard error), 1 after a failure.

The folder holds `order.json`; `initial.pt`, the model's state before the first step; `model-1.pt` …: what the calls of
`fit` before this one have trained.
"""

from typing import Annotated, NamedTuple

from protocol.reader import POSITIVE, one_of

ORDER_FILE = "order.json"
"""The order itself, a FitOrder."""
INITIAL_MODEL = "initial.pt"
"""The model's state before the first step."""


class EarlierFit(NamedTuple):
    """How an earlier call of `fit` in the script ended: it is not made again."""

    what: str
    """The file with the model's state, in the folder of the order; or the error's message."""
    error: Annotated[str, one_of("", "OptionError", "RuntimeError")] = ""
    """The error's class; empty where there was none."""


class FitOrder(NamedTuple):
    """What the ranks of a fit are told: `order.json`."""

    fit: Annotated[int, POSITIVE]
    """Which call of `fit` in the script it is, from 1."""
    seed: int
    """Of torch's generator when the script began."""
    data: str
    """A checksum of which samples were chosen; empty where nobody knows."""
    ended: list[EarlierFit]
    """One for each call of `fit` before this one."""
    resume: str
    """The folder of the run whose checkpoints it goes on from, on the machine where it was started; empty: none. On a
    cluster these checkpoints go to `.resume` beside `.fit`, each node's own."""


def model_file(fit: int) -> str:
    """The file of an order with what an earlier call of `fit` has trained."""
    return f"model-{fit}.pt"
