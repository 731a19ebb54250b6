"""What all verbs share: signals, closed pipes, exit codes."""

import importlib
import io
import itertools
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from types import SimpleNamespace

import pytest

import cluster.base.stdout
import cluster.launch
import cluster.logs
import cluster.profiles
import cluster.verify
import cluster.watch
from cluster.api import Cluster
from cluster.base.errors import UsageError, unknown
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import DEFAULT_NAME
from cluster.base.stdout import Output
from cluster.cli.command_line import add_name, add_shape, add_size, make_parser, run_verb

VERB = """\
from cluster.cli.command_line import make_parser, run_verb
from cluster.base.errors import ClusterError

def verb(args):
    {body}

raise SystemExit(run_verb(make_parser("cluster.some", "Some."), verb, {words}))
"""


def start(code):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=PROJECT_DIR,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize(
    ("body", "exit_code"),
    [
        ("return {'much': 'x' * 10**6}", 0),
        ("raise ClusterError('a link is broken', document={'much': 'x' * 10**6})", 1),
    ],
)
def test_a_document_that_nobody_reads_changes_no_exit_code(body, exit_code):
    """As in `status --json | head -1` of a large cluster."""
    running = start(VERB.format(body=body, words="['--json']"))
    running.stdout.close()
    assert "Traceback" not in running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=20) == exit_code


def test_messages_that_nobody_reads_change_no_exit_code():
    body = "[Console().say('x' * 1000) for _ in range(1000)]"
    code = "from cluster.base.console import Console\n" + VERB.format(body=body, words="[]")
    running = start(code)
    running.stderr.close()
    running.stdout.close()
    assert running.wait(timeout=20) == 0


SIGNALS = """\
import os, signal
from cluster.cli.command_line import hear_signals

{before}
hear_signals()
try:
    os.kill(os.getpid(), signal.{first})
    print("went on")
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    print("cleaned up")
"""


@pytest.mark.parametrize(
    ("before", "first", "said"),
    [
        ("", "SIGTERM", "cleaned up"),
        ("signal.signal(signal.SIGHUP, signal.SIG_DFL)", "SIGHUP", "cleaned up"),
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", "SIGHUP", "went on"),  # nohup
    ],
)
def test_a_signal_ends_us_once_and_nohup_is_kept_to(before, first, said):
    out, stderr = start(SIGNALS.format(before=before, first=first)).communicate(timeout=20)
    assert (out, stderr) == (f"{said}\n", "")


def run(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT_DIR,
        text=True,
        stderr=subprocess.PIPE,
        timeout=20,
        **kwargs,
    )


LONG_TABLE = "[print('x' * 100) for _ in range(2000)]; "


@pytest.mark.parametrize(
    ("ends", "exit_code"),
    [("raise ClusterError('a link is broken')", 1), ("return None", 0)],
)
def test_a_table_that_nobody_reads_changes_no_exit_code(ends, exit_code):
    """As in `verify | head -1`: the verb runs to its end, which decides the exit code."""
    running = start(VERB.format(body=LONG_TABLE + ends, words="[]"))
    running.stdout.close()
    assert "Traceback" not in running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=20) == exit_code


@pytest.mark.parametrize("body", ["print('a line')", LONG_TABLE + "return 1"])
@pytest.mark.parametrize("words", ["[]", "['--json']"])
def test_a_full_disk_behind_standard_output_is_one_line_and_exit_1(body, words):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run(VERB.format(body=body, words=words), stdout=full)
    assert done.returncode == 1, done.stderr
    assert done.stderr == (
        "error: standard output cannot be written: No space left on device\n"
        "  try: free disk space\n"
    )


def test_a_full_disk_behind_standard_error_changes_no_exit_code():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        code = VERB.format(body="raise ClusterError('a link is broken')", words="[]")
        done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_DIR, stderr=full)
    assert done.returncode == 1


def run_without(streams, *words):
    """Run Python with some of its standard streams closed (`2>&-`), as some daemons start programs."""
    closed = " ".join(f"{stream}>&-" for stream in streams)
    argv = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *words]
    return subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("streams", [(1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("cluster", 0),
        ("cluster nosuch", 2),
        ("cluster.profiles", 0),
        ("cluster.profiles nosuch", 2),
        ("cluster.launch --help", 0),
    ],
)
def test_standard_streams_that_are_closed_change_no_exit_code(streams, words, exit_code):
    done = run_without(streams, "-m", *words.split())
    assert done.returncode == exit_code, done
    assert "Traceback" not in done.stdout + done.stderr
    assert not done.stdout or exit_code == 0, "an error is no result"


def test_messages_and_sockets_do_not_get_into_each_other_if_standard_streams_are_closed():
    body = (
        "Console().say('x'); print('y'); sys.stdin.read(); assert socket.socket().fileno() > 2; "
        "subprocess.run(['sh', '-c', 'cat && echo x && echo x >&2'], check=True)"
    )
    code = "import socket, subprocess, sys\nfrom cluster.base.console import Console\n"
    done = run_without((0, 1, 2), "-c", code + VERB.format(body=body, words="[]"))
    assert done.returncode == 0


def test_a_terminal_without_our_letters_gets_others():
    code = VERB.format(body="print('node1 → node2 …')", words="[]")
    done = run(code, stdout=subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "node1 \\u2192 node2 \\u2026\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("open('/none/x')", "No such file or directory: /none/x"),
        ("raise OSError(28, 'No space left on device', 'runs/x.json')", "free disk space"),
        ("raise PermissionError(13, 'Permission denied', 'runs')", "runs"),
        ("raise OSError(24, 'Too many open files')", "ulimit -n"),
        ("raise OSError('in words of its own')", "in words of its own"),
    ],
)
def test_what_the_system_refuses_is_no_bug_of_ours(body, message):
    done = run(VERB.format(body=body, words="[]"), stdout=subprocess.PIPE)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_what_we_did_not_think_of_is_a_bug():
    done = run(VERB.format(body="raise KeyError('x')", words="[]"), stdout=subprocess.PIPE)
    assert done.returncode == 3
    assert "this is a bug in gradwire" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(["--profile", ""], ["--profile="], ["--topology", ""], ["--wire="], ["--name", ""]),
        *(["--image", ""], ["--nodes", ""], ["--schedule", ""], ["--folder", ""]),
        *(["--link-seed", ""], ["--set", ""], ["--strategy="]),
    ],
)
def test_an_option_without_its_value_is_refused(words, capsys, monkeypatch):
    """As in `--profile "$PROFILE"` with PROFILE unset: a launch without a profile would not be what was meant."""
    monkeypatch.setattr(cluster.launch.Cluster, "up", lambda self: pytest.fail("it was started"))
    assert cluster.launch.main(["--dry-run", *words]) == 2
    said = capsys.readouterr()
    assert f"error: {words[0].rstrip('=')} is empty" in said.err
    assert said.out == ""


@pytest.mark.parametrize("words", [["--name=--"], ["--nodes=--"], ["-f--"]])
def test_two_dashes_are_no_value(words, capsys):
    """Some versions of argparse return an empty list for them."""
    assert cluster.launch.main(["--dry-run", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words[0]}: -- is no value\n")


def test_an_empty_variable_says_nothing(monkeypatch):
    """As is usual in a shell, where an empty value unsets a variable for one command."""
    for name in ("PROFILE", "NODES", "NAME"):
        monkeypatch.setenv(f"GRADWIRE_{name}", "")
    parser = make_parser("cluster.some", "Some.")
    add_name(parser)
    add_size(parser)
    add_shape(parser)
    seen = []
    assert run_verb(parser, seen.append, []) == 0
    assert (seen[0].profile, seen[0].nodes, seen[0].name) == (None, None, DEFAULT_NAME)


@pytest.mark.parametrize(
    ("verb", "words", "says"),
    [
        (cluster.logs, "--tail -1", "--tail -1"),  # Docker's client would take it for all lines
        (cluster.logs, "--grep (", "--grep '(' is no regular expression"),
        (cluster.verify, "--budget -5", "a budget of -5 s"),
        (cluster.verify, "--full --budget nan", "a budget of nan s"),
        (cluster.verify, "--quick --budget 5", "a budget is for TCP, which --quick leaves out"),
        (cluster.launch, "--dry-run --http 99999", "--http 99999"),
        (cluster.watch, "--http 99999", "--http 99999"),
        (cluster.watch, "--once --http -1", "--http -1"),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_anything_is_asked(
    verb, words, says, capsys, monkeypatch
):
    for module, name in ((cluster.api, "connect_engine"), (cluster.watch, "find_run")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it was asked"))
    assert verb.main(words.split()) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {says}") and hint.startswith("  try: ")


def test_a_budget_from_the_environment_is_none_for_what_is_quick(monkeypatch):
    given, contract = [], SimpleNamespace(holds=True, document=dict)
    monkeypatch.setattr(Cluster, "verify", lambda _, *words: given.append(words) or contract)
    monkeypatch.setenv("GRADWIRE_BUDGET", "20")
    assert cluster.verify.main(["--json", "--quick"]) == cluster.verify.main(["--json"]) == 0
    assert given == [("quick", None), ("normal", 20.0)]


@pytest.mark.parametrize("field", ["profile", "name", "image"])
def test_an_empty_word_is_refused_from_python_too(field):
    with pytest.raises(UsageError, match="''"):
        Cluster(**{field: ""})


@pytest.mark.parametrize(
    "words",
    ["cluster.profiles", "cluster.profiles --json", "cluster.launch --dry-run --profile wan"]
    + ["cluster", "cluster.launch --help"],
)
def test_a_real_verb_onto_a_full_disk(words):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", *words.split()],
            cwd=PROJECT_DIR,
            text=True,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("words", ["cluster", "cluster.launch --help"])
def test_help_that_nobody_reads_and_help_in_a_locale_without_our_letters(words):
    argv = [sys.executable, "-m", *words.split()]
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for env in (os.environ, ascii_only):
        running = subprocess.Popen(
            argv, cwd=PROJECT_DIR, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if env is ascii_only:
            assert b"python -m cluster" in running.stdout.read()
        running.stdout.close()
        assert running.stderr.read() == b""
        running.stderr.close()
        assert running.wait(timeout=20) == 0


@pytest.mark.parametrize("words", [["two\nlines"], ["--two\nlines"], ["--json", "\x1b[2J"]])
def test_a_word_of_several_lines_is_refused_in_one(words, capsys):
    assert cluster.profiles.main(words) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first == f"error: {words[-1]!r} has a line end, or another control character"


def test_a_variable_of_several_lines_is_refused_in_one(capsys, monkeypatch):
    monkeypatch.setenv("GRADWIRE_PROFILE", "two\nlines")
    assert cluster.launch.main(["--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("error: GRADWIRE_PROFILE has a line end")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [("VERIFY", "ful", "none of look, full, none"), ("NODES", "x", "no int")],
)
def test_a_variable_is_checked_as_its_option_is(capsys, monkeypatch, variable, value, why):
    """Argparse checks no default against an option's choices, and would name the option, which nobody typed."""
    monkeypatch.setenv(f"GRADWIRE_{variable}", value)
    assert cluster.launch.main(["--dry-run"]) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first == f"error: GRADWIRE_{variable}={value!r} in the environment: {why}"
    assert "unset it" in hint


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [
        ("launch", "--nodes x", "--nodes 'x': not a whole number"),
        ("launch", "--verify maybe", "--verify 'maybe': not one of"),
        ("launch", "--no-verify --verify full", "--verify and --no-verify exclude each other"),
        ("launch", "--plain=yes", "--plain takes no value: 'yes'"),
        ("launch", "-f", "-f/--file needs a value"),
        ("shape", "--delay far", "--delay 'far': not a number"),
        ("schema", "prof", "kind 'prof': not one of"),
        ("report", "", "missing: RUN"),
        ("report", "runs/x --output", "--output needs a value"),
        ("up", "--profil wan", "unknown argument '--profil': did you mean --profile?"),
        ("up", "mobile", "unknown argument 'mobile'"),
    ],
)
def test_an_argument_that_cannot_be_parsed_is_one_line_with_a_hint(capsys, verb, words, message):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"cluster.{verb}").main(words.split())
    assert end.value.code == 2
    said = capsys.readouterr()
    first, hint = said.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert hint == f"  try: python -m cluster.{verb} --help"
    assert said.out == ""


def test_a_log_that_is_followed_ends_with_its_reader(monkeypatch):
    """Otherwise `logs --follow | head` would never end."""
    lines = (("node1", "a line") for _ in itertools.count())
    monkeypatch.setattr(cluster.logs, "_read", lambda *args, **kwargs: lines)
    monkeypatch.setattr(cluster.logs, "Cluster", FakeCluster)
    monkeypatch.setattr(cluster.base.stdout, "write_nowhere", lambda stream: None)
    stream = Output(ClosedPipe())
    monkeypatch.setattr("sys.stdout", stream)
    args = Namespace(grep=None, json=False, follow=True, name="lab", nodes=[], tail=None)
    assert cluster.logs.logs(args) == []


class FakeCluster:
    """A cluster without nodes."""

    def __init__(self, name):
        self.spec = SimpleNamespace(nodes=())
        self.engine = SimpleNamespace(containers=lambda name: [])


class ClosedPipe(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError


TWICE = """\
import os, signal, sys, time
from cluster.cli.command_line import hear_signals

hear_signals()
try:
    os.kill(os.getpid(), signal.{first})
    time.sleep(60)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)  # the same press of the keys, handed on
    print("cleans up", flush=True)
    for _ in range(600):
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)  # a closing shell's, which may be many
"""


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_a_second_ctrl_c_ends_us_at_once_and_says_so(first):
    running = start(TWICE.format(first=first))
    assert running.stdout.readline() == "cleans up\n"
    time.sleep(0.6)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=5)
    assert running.returncode == 130
    assert "without cleaning up" in stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--node", "--nodes"),  # not --nproc-per-node, which ends so
        ("--link", "--link-seed"),
        ("--seed", "--link-seed"),
        ("--share", "--shared"),
        ("--stpes", "--steps"),
        *((far, "") for far in ("--x", "--force", "--H", "--stage")),
    ],
)
def test_a_flag_that_is_the_beginning_or_the_end_of_a_longer_one_was_meant_for_it(typed, meant):
    known = ["--link-seed", "--nodes", "--nproc-per-node", "--shared", "--steps"]
    hint = unknown("option", typed, known).hint
    assert hint.startswith(f"did you mean {meant!r}?" if meant else "one of: ")
