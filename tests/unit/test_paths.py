"""The location of a user's project, and what a wheel has in place of a checkout's top folder."""

import os
import subprocess
import sys
import tarfile
import tomllib

import pytest

from cluster.base.paths import CODE_DIR, IMAGE_DIR, PROFILES_DIR, PROJECT_DIR, find_project
from cluster.engine import image


def test_in_a_checkout_all_of_it_is_the_checkout():
    assert PROJECT_DIR == CODE_DIR == IMAGE_DIR
    assert (PROFILES_DIR / "mobile.yml").is_file()


@pytest.mark.parametrize(("stands", "found"), [("", ""), ("a/b", "a"), ("a", "a"), ("c", "c")])
def test_elsewhere_it_is_the_nearest_folder_with_a_state_or_the_one_in_which_the_user_stands(
    tmp_path, stands, found
):
    (tmp_path / "a" / ".gradwire").mkdir(parents=True)
    (tmp_path / "a" / "b").mkdir()
    (tmp_path / "c").mkdir()
    assert find_project(tmp_path / stands) == tmp_path / found


def test_a_wheel_has_all_that_lies_outside_of_the_packages():
    project = tomllib.loads((CODE_DIR / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    outside = {name for name, folder in image.SOURCES.items() if folder == IMAGE_DIR} - {
        "node",
        "protocol",
    }
    assert included == {
        **{name: f"cluster/data/{name}" for name in outside},
        "compose/profiles": "cluster/data/profiles",
    }


def test_a_folder_of_somebody_elses_is_no_project(tmp_path, monkeypatch):
    """The other user could read the keys stored in it."""
    (tmp_path / ".gradwire").mkdir()
    (tmp_path / "mine").mkdir()
    assert find_project(tmp_path / "mine") == tmp_path
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert find_project(tmp_path / "mine") == tmp_path / "mine"


def test_a_current_folder_that_is_gone_stops_nothing_that_needs_none(tmp_path):
    (tmp_path / "gone").mkdir()
    code = f"import os; os.rmdir(os.getcwd()); import sys; sys.path.insert(0, {str(CODE_DIR)!r})\n"
    code += "import cluster.base.paths as p; p.find_project(p._current_folder()); print('fine')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "gone", capture_output=True, text=True
    )
    assert done.stdout == "fine\n", done.stderr


def test_the_image_is_built_from_what_goes_into_it_with_modes_of_its_own():
    with (
        image._build_context([CODE_DIR / "README.md"]) as context,
        tarfile.open(fileobj=context) as archive,
    ):
        members = {member.name: member.mode for member in archive}
    assert members.keys() == {str(name) for name, _ in image._source_files()} | {"wheels/README.md"}
    assert (members["node/boot.sh"], members["node/train.py"]) == (0o755, 0o644)


def test_a_file_of_that_name_is_no_state(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / ".gradwire").write_text("")
    assert find_project(tmp_path / "below") == tmp_path / "below"
