"""The three families of odd inputs, and a function that tries one of their cases many times."""

import tempfile
from collections import Counter
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from fuzzing import answer_cases, argument_cases, yaml_cases
from fuzzing.sandbox import sandbox

FAMILIES: dict[str, dict[str, Any]] = {
    "files": yaml_cases.CASES,
    "arguments": argument_cases.CASES,
    "answers": answer_cases.CASES,
}


TAKEN = {"taken", "exit 0", "accounts"}
# Share of a family's examples: these are slow, as a process of node.train checks or a script engine draws each.
FEW = {"training": 0.03, "sweep": 0.03, "drawn_report": 0.02}


def shares(names, examples):
    """Return the number of examples for each of these cases."""
    few = {name: max(1, round(examples * FEW[name])) for name in names if name in FEW}
    rest = [name for name in names if name not in few]
    return few | dict.fromkeys(rest, -(-max(0, examples - sum(few.values())) // max(1, len(rest))))


# Hypothesis stores character tables, by default in the current folder.
_HOME = tempfile.TemporaryDirectory(prefix="gradwire-fuzz-")
set_hypothesis_home_dir(_HOME.name)


class Tried(NamedTuple):
    """The number of times that a case was tried, and the results."""

    examples: int
    results: Counter


def try_case(family, name, examples, number=None):
    """Try a case this many times, seeded with `number`; None: always with the same examples.

    Raises:
        AssertionError: or any other unexpected error, with the smallest example that shows it.
    """
    strategy, action = FAMILIES[family][name]
    count = 0

    def one(drawn):
        nonlocal count
        count += 1
        place.clean()
        action(place, *(drawn if isinstance(drawn, tuple) else (drawn,)))
        place.check_untouched()

    test = _options(examples, number)(given(st.deferred(lambda: strategy))(one))
    with sandbox() as place:
        (test if number is None else seed(number)(test))()
    assert TAKEN & place.results.keys(), f"not even the good ones were taken: {place.results}"
    return Tried(count, Counter(place.results))


def _options(examples, number):
    return settings(
        max_examples=examples,
        derandomize=number is None,
        deadline=None,  # the sandbox has one
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.normal,
        print_blob=False,
        report_multiple_bugs=False,
    )
