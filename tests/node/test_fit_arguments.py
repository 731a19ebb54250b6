"""Tests of what fit makes of its own arguments, and of those that its script was started with."""

import sys
from types import SimpleNamespace

import pytest

from node.exogym import local
from node.exogym.fit_flags import FitFlags


@pytest.mark.parametrize(
    ("started", "module", "words"),
    [
        (["mine.py", "a", "-m", "b"], None, ["{0}/mine.py", "a", "-m", "b"]),
        (["-X", "mine.py", "-Bu", "./mine.py", "a"], None, ["{0}/mine.py", "a"]),
        (["coverage", "run", "mine.py", "a"], None, ["{0}/mine.py", "a"]),
        (["elsewhere.py", "a"], None, ["{0}/mine.py", "changed"]),
        (["-W", "mine", "-Im", "mine", "a"], "mine", ["-m", "mine", "a"]),
        (["-mmine.part", "-m", "a"], "mine.part", ["-m", "mine.part", "-m", "a"]),
        (["-m", "mine", "a"], "mine.__main__", ["-m", "mine", "a"]),
        (["-m", "mine.__main__", "a"], "mine.__main__", ["-m", "mine", "a"]),
    ],
)
def test_words_are_those_behind_the_options_of_python(
    started, module, words, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").touch()
    main = SimpleNamespace(__spec__=module and SimpleNamespace(name=module))
    main.__file__ = str(tmp_path / "mine.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(local, "STARTED_IN", tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["python3", *started])
    monkeypatch.setattr(sys, "argv", ["mine.py", "changed"])
    assert local.own_words() == [word.format(tmp_path) for word in words]


@pytest.mark.parametrize(
    ("size", "epochs", "steps"), [(1000, 3, 5), (1000, 1, 2), (1200, 3, 6), (600, 1, 1)]
)
def test_the_steps_of_some_epochs_use_all_their_samples(size, epochs, steps):
    flags = FitFlags("ddp", 3, None, epochs, 200, None, None, 0, False, None, None, 1).flags(size)
    assert flags[flags.index("--steps") + 1] == str(steps)
