"""Arguments and environments for every verb, in a place without a Docker engine."""

import importlib
import os
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st

import cluster.__main__
from fuzzing.mutations import NINES
from fuzzing.sandbox import call, check
from fuzzing.yaml_cases import write_folder

VERBS = cluster.__main__.VERBS
# It reads the caller's standard input and ends the process with it; tests/cluster covers it.
LEFT_OUT = {"--attached"}
PLAIN = """\
- -- -1 0 1 2 3 64 100 1.5 nan inf 1e400 ² node1 node2 node9 node1:node2 node1=1 node1= = node1=0 all none auto
mobile wan mobil ring full netem nfqueue best node1,node2,node3 1,2,3 5s 2m 1e9h 10g 500m 9999999999t 0,1 a,,b
test_accuracy=0.8 x=y train.py mine.yml binary folder none.yml ./none ../work runs/reported runs ü💥 %s {rank}
lab Not/A/Name $HOME ~ * --help -h --json -f fedavg diloco
"""
ODD = ("", " ", NINES, "step 3", "x" * 300, "a/" * 300, "../" * 40 + "none", "a" * 80)
ODD += ("\udcff", "two\nlines", "\x1b[2J", "%s %d")
TRAINING = ("--steps", "--strategy", "--set", "--task", "--seed", "--lr", "--resume", "--nothing")


def _can_be_passed(word):
    """Return whether the kernel takes it as an argument: bytes without NUL, in which Python allows lone surrogates."""
    try:
        os.fsencode(word)
    except UnicodeEncodeError:  # the locale cannot encode it
        return False
    return "/" not in word and "\0" not in word


WORDS = [word for word in (*PLAIN.split(), *ODD) if "/" in word or _can_be_passed(word)]
LETTERS = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=12)
ANY_WORD = st.one_of(st.sampled_from(WORDS), LETTERS.filter(_can_be_passed))


def parser_of(verb):
    """Return a verb's parser without running the verb."""
    module, found = importlib.import_module(f"cluster.{verb}"), []
    with patch.object(
        module, "run_verb", lambda parser, *_args, **_more: found.append(parser) or 0
    ):
        module.main([])
    return found[0]


def _flags_of(verb):
    actions = parser_of(verb)._actions
    named = [flag for action in actions for flag in action.option_strings]
    return [flag for flag in named if flag not in LEFT_OUT]


FLAGS = {verb: _flags_of(verb) for verb in VERBS}
VARIABLES = sorted(
    {
        f"GRADWIRE_{flag[2:].replace('-', '_').upper()}"
        for verb in VERBS
        for flag in FLAGS[verb]
        if flag.startswith("--")
    }
)


@st.composite
def commands(draw):
    """Draw a verb, its arguments, and environment variables."""
    verb = draw(st.sampled_from((*VERBS, "launch", "launch", "launch", "sweep", "shape")))
    flags = st.sampled_from([*FLAGS[verb], *(TRAINING if verb in ("launch", "sweep") else ())])
    words = []
    for _ in range(draw(st.integers(0, 6))):
        how = draw(st.sampled_from(("flag", "pair", "pair", "pair", "joined", "word")))
        flag, word = draw(flags), draw(ANY_WORD)
        words += {
            "flag": [flag],
            "pair": [flag, word],
            "joined": [f"{flag}={word}"],
            "word": [word],
        }[how]
    if verb == "launch" and draw(st.booleans()):
        words += [
            "--",
            *draw(st.sampled_from((["train.py"], ["-m", "train"], ["none.py"], ["binary"], []))),
        ]
    names = draw(st.lists(st.sampled_from(VARIABLES), max_size=2))
    environment = {name: draw(ANY_WORD) for name in names if draw(st.integers(0, 3)) == 0}
    return verb, words, environment


def command(place, verb, words, environment):
    """Call the verb in a folder with files of all sorts."""
    write_folder(place, Path("reported/run.yml"), b"")
    (place.work / "folder").mkdir()
    (place.work / "train.py").write_text("")
    (place.work / "mine.yml").write_text("{rate_mbyte_s: 1, delay_ms: 2}")
    (place.work / "binary").write_bytes(bytes(range(256)) * 4)
    main = importlib.import_module(f"cluster.{verb}").main
    with patch.dict("os.environ", environment):
        ended = call(main, words)
    place.count(f"exit {ended.exit_code}")
    check(ended)


CASES = {"command": (commands(), command)}
