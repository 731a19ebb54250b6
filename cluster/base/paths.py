"""Paths: our code and its data, and the project of whoever uses it.

In a checkout the project is the checkout itself. Where gradwire is installed (`pip install`) it is the folder in which
the user stands, or the nearest above it that has a `.gradwire` of the same user: projects on one machine do not see
each other.
"""

import os
from pathlib import Path
from stat import S_ISDIR

STATE_FOLDER = ".gradwire"
CODE_DIR = Path(__file__).resolve().parents[2]
"""The folder of the packages `cluster`, `node` and `protocol`."""
WHEEL_DIR = CODE_DIR / "cluster" / "data"
"""pyproject.toml puts there what a checkout has at its top."""
IS_CHECKOUT = not os.path.isfile(WHEEL_DIR / "Dockerfile")  # noqa: PTH113
IMAGE_DIR = CODE_DIR if IS_CHECKOUT else WHEEL_DIR
PROFILES_DIR = CODE_DIR / "compose" / "profiles" if IS_CHECKOUT else WHEEL_DIR / "profiles"


def find_project(folder: Path) -> Path:
    """The nearest folder, from this one upwards, that has a state folder; this one where there is none.

    One of somebody else does not count: keys would lie in it that he knows.
    """
    above = (one for one in (folder, *folder.parents) if _is_own_folder(one / STATE_FOLDER))
    return next(above, folder)


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:  # none, or behind a folder that is closed to us
        return False
    return S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it has been removed; whoever writes there is told
        return Path(os.environ.get("PWD", "/"))


PROJECT_DIR = CODE_DIR if IS_CHECKOUT else find_project(_current_folder())
"""Keys, records and runs lie in it."""
