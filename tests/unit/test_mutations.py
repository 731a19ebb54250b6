"""The table in tests/mutations.py is current: the code that each mutation changes exists, and so does its test."""

import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTATIONS
from mutants.mutation import Mutation

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
COMMAND = PROJECT_DIR / "tests" / "mutations.py"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_changes_is_there_once_and_its_test_exists(mutation):
    text = (PROJECT_DIR / mutation.file).read_text(encoding="utf-8")
    assert mutation.apply(text) not in (None, text)
    name = mutation.test.partition("::")[2].partition("[")[0]
    assert f"\ndef {name}(" in (PROJECT_DIR / mutation.test_file).read_text(encoding="utf-8")


def test_every_mutation_has_a_name_of_its_own():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 30


def test_what_is_there_twice_or_never_is_not_mutated():
    mutation = Mutation("m", "f", "a = 1", "a = 2", "t")
    assert mutation.apply("a = 1\nb = 1\n") == "a = 2\nb = 1\n"
    assert mutation.apply("a = 1\na = 1\n") is None
    assert mutation.apply("") is None


def command(*args):
    return subprocess.run([sys.executable, COMMAND, *args], capture_output=True, text=True)


def test_the_command_lists_what_there_is_and_refuses_to_count_nothing():
    listed = command("--list").stdout.splitlines()
    assert len(listed) == len(MUTATIONS)
    nothing = command("--only", "there is no such mutation")
    assert (nothing.returncode, nothing.stdout) == (1, "0 caught, 0 survived\n")
