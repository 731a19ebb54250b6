"""Paths of our code and its data, and of the user's project.

In a checkout the project is the checkout itself. If gradwire is installed (`pip install`), it is the nearest folder,
from the current one upwards, that has a `.gradwire` owned by the same user, else the current one: projects on one
machine do not see each other.
"""

import os
from pathlib import Path
from stat import S_ISDIR

STATE_FOLDER = ".gradwire"
CODE_DIR = Path(__file__).resolve().parents[2]
"""The folder of the packages `cluster`, `node` and `protocol`."""
WHEEL_DIR = CODE_DIR / "cluster" / "data"
"""The folder of an installed wheel into which pyproject.toml puts the files of a checkout's top level."""
IS_CHECKOUT = not os.path.isfile(WHEEL_DIR / "Dockerfile")  # noqa: PTH113
IMAGE_DIR = CODE_DIR if IS_CHECKOUT else WHEEL_DIR
PROFILES_DIR = CODE_DIR / "compose" / "profiles" if IS_CHECKOUT else WHEEL_DIR / "profiles"


def find_project(folder: Path) -> Path:
    """Return the nearest folder, from `folder` upwards, that has a state folder; `folder` itself if none has.

    A state folder of another user does not count: that user knows the keys in it.
    """
    above = (one for one in (folder, *folder.parents) if _is_own_folder(one / STATE_FOLDER))
    return next(above, folder)


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:  # missing, or in a folder that we may not search
        return False
    return S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it has been removed; a later write there reports that
        return Path(os.environ.get("PWD", "/"))


PROJECT_DIR = CODE_DIR if IS_CHECKOUT else find_project(_current_folder())
"""The folder of keys, records and runs."""
