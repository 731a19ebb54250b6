"""The order that `Trainer.fit` gives to the ranks that it starts: a folder.

`python -m node.exogym.script_rank FOLDER script.py ARGS…` runs one of the ranks. With `--attached` before FOLDER, the
rank ends when its standard input does, which the script that called `fit` holds open. Under `cluster.launch --attached
--fit FOLDER -- script.py ARGS…` (attached likewise), the folder is copied to `.fit` in the program's working directory
on every node. The exit code is 0 when the rank has trained, 2 after a user error (one line on standard error), 1 after
a failure.

The folder holds `order.json`; `initial.pt`, the model's state before the first step; `samples.pt`, some samples of the
datasets, unless each rank makes its own; `model-1.pt` …: the models that earlier calls of `fit` have trained.
"""

from typing import Annotated, NamedTuple

from protocol.reader import POSITIVE, one_of

ORDER_FILE = "order.json"
"""The order itself, a FitOrder."""
INITIAL_MODEL = "initial.pt"
"""The model's state before the first step."""
SAMPLES = "samples.pt"
"""Some samples of the datasets, to compare with those of each rank: node/exogym/same_data.py."""
ATTACHED = "--attached"
"""The flag of a rank and of `cluster.launch`: end when standard input does."""


class EarlierFit(NamedTuple):
    """How an earlier call of `fit` in the script ended; ranks do not repeat it."""

    what: str
    """The file with the model's state, in the order's folder; after an error, its message."""
    error: Annotated[str, one_of("", "OptionError", "RuntimeError")] = ""
    """The error's class; empty if there was none."""


class FitOrder(NamedTuple):
    """The order to the ranks of a fit: `order.json`."""

    fit: Annotated[int, POSITIVE]
    """The number of this call of `fit` in the script, from 1."""
    seed: int
    """Seed of torch's generator at the start of the script."""
    data: str
    """A checksum of the datasets' sizes, classes and chosen indices; empty if each rank makes its own datasets."""
    ended: list[EarlierFit]
    """One for each call of `fit` before this one."""
    resume: str
    """The folder of the run whose checkpoints it continues from, on the machine where it was started; empty: none. On
    a cluster, each node's own checkpoints are copied to `.resume` beside `.fit`."""


def model_file(fit: int) -> str:
    """Return the name of the file with the model that an earlier call of `fit` has trained."""
    return f"model-{fit}.pt"
