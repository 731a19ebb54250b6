"""Tests of a fit's order file, which the process that calls fit writes and its ranks read."""

import pytest

from node.exogym.fit_order import checkpoints_to_resume, read_fit_order, write_fit_order
from protocol.fit_order import EarlierFit, FitOrder
from protocol.rank_variables import FIT
from protocol.reader import FormatError


def test_an_order_of_a_fit_goes_to_its_ranks_with_the_models_before_it(tmp_path, monkeypatch):
    model, folder = tmp_path / "any.pt", tmp_path / "work" / ".fit"
    model.write_bytes(b"weights")
    folder.mkdir(parents=True)
    ended = [EarlierFit("no such data", "OptionError"), EarlierFit(str(model))]
    order = FitOrder(3, 2**64 - 1, "0a", ended, "/runs/before")
    write_fit_order(order, folder)
    monkeypatch.setenv(FIT, str(folder))
    there = read_fit_order({FIT: str(folder)})
    assert there == order._replace(ended=[ended[0], EarlierFit("model-2.pt")])
    assert (folder / "model-2.pt").read_bytes() == b"weights"
    assert checkpoints_to_resume(there, "cluster") == tmp_path / "work" / ".resume"
    assert str(checkpoints_to_resume(there, "local")) == "/runs/before"
    assert checkpoints_to_resume(there._replace(resume=""), "cluster") is None
    assert read_fit_order({}) is None


def test_an_order_of_a_fit_names_a_class_of_error_that_there_is(tmp_path):
    wrong = FitOrder(1, 1, "", [EarlierFit("boom", "SystemExit")], "")
    write_fit_order(wrong, tmp_path)
    with pytest.raises(FormatError, match=r"order\.json\.ended\[0\]\.error: expected one of"):
        read_fit_order({FIT: str(tmp_path)})
