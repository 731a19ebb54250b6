"""Malformed files, arguments and node replies: a few fixed cases of each; `python tests/fuzz.py` tries many."""

import pytest

pytest.importorskip("hypothesis", reason="pip install -e '.[test]'")

from fuzzing.families import FAMILIES, try_case  # noqa: E402

EXAMPLES = 12
OF_SLOW_CASES = {"training": 2, "sweep": 2, "traces": 3}
# Without drawn_report: its script engine draws for seconds, on every CPU.
CASES = [(f, name) for f, cases in FAMILIES.items() for name in cases if name != "drawn_report"]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_what_is_odd_ends_in_one_clear_line(family, name):
    assert try_case(family, name, OF_SLOW_CASES.get(name, EXAMPLES)).examples
