"""What a launcher reads of `node.train --dry-run`, which prints the resolved configuration of a training.

The configuration is a JSON object under the names of node.train's flags (node/training/config.py). A launcher keeps all
of it, as `training` in run.yml, and goes by these few keys.
"""

from collections.abc import Mapping
from typing import NamedTuple

from protocol.reader import Count, read


class Training(NamedTuple):
    """What decides how a training is launched. The defaults are those of a program of the user's own."""

    task: str = ""
    """What is learnt; a task of the user's own as FILE.py:NAME."""
    strategy: str = ""
    """What ranks send each other, likewise; `none` where one rank learns alone."""
    steps: Count = 0
    """How many steps each rank makes; 0 where nobody knows."""
    resume: str | None = None
    """The folder of a run from whose checkpoints it goes on."""
    essential_ranks: list[Count] | None = None
    """Ranks without which the run cannot go on; null: all."""
    needed_packages: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    """Python packages that the node image has only where it was asked for them, each with what needs it:
    `{"mujoco": "env=Hopper-v5"}`. `gradwire-node` is labelled with its build arguments (`MUJOCO=1`): a launch is
    refused, exit 2, where it was built without one. Of an image of the user's own only its ranks can tell; they end
    with 2."""


def read_training(config: Mapping[str, object]) -> Training:
    """What a launcher goes by, of a configuration that `--dry-run` has printed; other keys are left alone.

    Raises:
        FormatError: naming the key that is wrong.
    """
    return read(Training, {key: config[key] for key in Training._fields if key in config})
