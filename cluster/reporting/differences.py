"""What distinguishes runs that are compared. Pure."""

import shlex
from collections.abc import Sequence

from cluster.reporting.run_data import RunData

Item = tuple[str, str]  # a flag or a fact, and its value

PLAIN_FACTS = ("links", "topology", "wire", "congestion control", "limits", "schedule")
FACTS = ("nodes", "on hosts", "ranks a node", *PLAIN_FACTS)
PLAIN = ("strategy", "task", "set", "task-set", *PLAIN_FACTS)
"""A value of these needs no name before it."""
SEED_OF_LINKS = "seed of the links"
SEEDS = ("seed", SEED_OF_LINKS)
DEFAULTED = ("strategy", "task")
"""Flags whose value is known without them: the facts have it."""
MOST_LABEL = 60


def differences(runs: Sequence[RunData]) -> list[str]:
    """Return what each run has that not all of them have, for example `fedavg H=16 seed 2`; may be empty."""
    return [_words(items) for items in _own_items(runs)]


def series_of(runs: Sequence[RunData], names: Sequence[str]) -> list[str]:
    """Return the line of a chart to which each run belongs, by its label: runs that differ only in seeds share one.

    Args:
        runs: what is compared.
        names: the labels of runs that nothing short distinguishes.
    """
    own = [tuple(items) for items in _own_items(runs)]
    unseeded = [tuple(item for item in items if item[0] not in SEEDS) for items in own]
    chosen = unseeded if len(set(unseeded)) > 1 else own
    words = [_words(items) for items in chosen]
    alike: dict[str, set[tuple[Item, ...]]] = {}
    for one, items in zip(words, chosen, strict=True):
        alike.setdefault(one, set()).add(items)
    return [
        one if 0 < len(one) <= MOST_LABEL and len(alike[one]) == 1 else name
        for one, name in zip(words, names, strict=True)
    ]


def _own_items(runs: Sequence[RunData]) -> list[list[Item]]:
    items = [_items(run) for run in runs]
    shared = frozenset(items[0]).intersection(*items[1:]) if items else frozenset()
    return [[item for item in some if item not in shared] for some in items]


def _words(items: Sequence[Item]) -> str:
    return " ".join(
        f"{'' if name in PLAIN else name} {_short(name, value)}".strip() for name, value in items
    )


def _short(name: str, value: str) -> str:
    return value.split(",", 1)[0] if name == "links" else value


def _items(run: RunData) -> list[Item]:
    """Return everything that decides what a run does, as short as possible, in the order in which people name it."""
    facts = run.facts
    found = [(name, facts[name].split(" ", 1)[0]) for name in DEFAULTED if name in facts]
    flags = [item for item in _flags(facts.get("program", "")) if item[0] not in DEFAULTED]
    found += [item for item in flags if item[0] not in SEEDS]
    found += [(name, facts[name]) for name in FACTS if name in facts]
    found += [item for item in flags if item[0] in SEEDS]
    return found + [(name, facts[name]) for name in (SEED_OF_LINKS,) if name in facts]


def _flags(program: str) -> list[Item]:
    """Return the flags of a command line with their values; words without a flag have an empty name."""
    try:
        words = shlex.split(program)
    except ValueError:  # cut short within quotes
        words = program.split()
    found: list[Item] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found.append((name, value))
        elif found and found[-1][0] and not found[-1][1]:
            found[-1] = (found[-1][0], word)
        else:
            found.append(("", word))
    return found
