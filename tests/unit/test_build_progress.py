"""Progress messages made from the output of an image build."""

import pytest

from cluster.engine.build_progress import BuildProgress, is_progress

# Printed by apt-get 3.0 with -o APT::Status-Fd=1, pip 25 with --progress-bar raw.
NEED = "Need to get 287 MB of archives."
DOWNLOAD = "dlstatus:4:20.3140:Retrieving file 4 of 19"
INSTALL = "pmstatus:libtorch2.6:58.4416:Unpacking libtorch2.6 (amd64)"
FILE = "  Downloading torch-2.9.1-cp313-cp313-manylinux_2_28_x86_64.whl (899.7 MB)"


def reader(seconds):
    """A BuildProgress whose clock returns `seconds`, one per reading."""
    return BuildProgress(clock=iter(seconds).__next__)


@pytest.mark.parametrize("prefix", ["", "#8 12.3 "])
def test_how_much_apt_downloads_how_far_it_is_and_what_is_left(prefix):
    build = reader([0, 10])
    assert build.news(prefix + NEED) == NEED
    assert build.news(prefix + "dlstatus:1:0.0000:Retrieving file 1") == "downloading 287 MB: 0 %"
    assert build.news(prefix + DOWNLOAD) == "downloading 287 MB: 20 %, 39 s left"


def test_what_apt_has_already_is_not_counted_twice():
    build = reader([0])
    build.news("Need to get 12.5 MB/287 MB of archives.")
    assert build.news(DOWNLOAD).startswith("downloading 287 MB: 20 %")


@pytest.mark.parametrize("package", ["libtorch2.6", "libtorch2.6:amd64", "dpkg-exec"])
def test_what_apt_installs_and_how_far_it_is(package):
    line = f"pmstatus:{package}:58.4416:Unpacking libtorch2.6 (amd64)"
    assert reader([]).news(line) == "installing: 58 %, Unpacking libtorch2.6 (amd64)"


def test_each_file_that_pip_downloads_has_its_own_percentage():
    build = reader([0, 30, 100])
    assert build.news(FILE) == FILE.strip()
    assert build.news("Progress 0 of 899700000").endswith(": 0 %")
    assert build.news("Progress 299900000 of 899700000").endswith("…: 33 %, 60 s left")
    build.news("  Downloading numpy-2.5.5.whl (15.7 MB)")
    assert build.news("Progress 100 of 200") == "downloading numpy-2.5.5.whl: 50 %"


def test_all_other_lines_stay_as_they_are():
    for line in ("Step 3/9 : RUN apt-get update", "Progress is slow", "pmstatus", ""):
        assert reader([]).news(line) == line
        assert not is_progress(line)
    assert is_progress(DOWNLOAD) and is_progress("#8 1.2 " + INSTALL) and not is_progress(NEED)
