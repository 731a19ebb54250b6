"""What a launcher reads from `node.train --dry-run`, which prints the resolved configuration of a training.

The configuration is a JSON object whose keys are the names of node.train's flags (node/training/config.py). A launcher
keeps all of it, as `training` in run.yml, and uses only the keys below.
"""

from collections.abc import Mapping
from typing import NamedTuple

from protocol.reader import Count, read


class Training(NamedTuple):
    """The settings that decide how a training is launched. The defaults are those of a user's own program."""

    task: str = ""
    """The task; a user's own task as FILE.py:NAME."""
    strategy: str = ""
    """The strategy, likewise; `none` if one rank learns alone."""
    steps: Count = 0
    """Number of steps of each rank; 0 if unknown."""
    resume: str | None = None
    """The folder of the run whose checkpoints it continues from."""
    essential_ranks: list[Count] | None = None
    """Ranks without which the run cannot go on; null: all."""
    needed_packages: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    """Python packages that the node image contains only on request, each with the setting that needs it:
    `{"mujoco": "env=Hopper-v5"}`. `gradwire-node` is labelled with its build arguments (`MUJOCO=1`): a launch is
    refused, exit 2, if the image was built without a package. In a user's own image, only the ranks can detect this;
    they exit with 2."""


def read_training(config: Mapping[str, object]) -> Training:
    """Read the keys that a launcher uses from a configuration that `--dry-run` printed; ignore other keys.

    Raises:
        FormatError: naming the key that is wrong.
    """
    return read(Training, {key: config[key] for key in Training._fields if key in config})
