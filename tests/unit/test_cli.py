"""What all verbs share: signals, readers that go away, exit codes."""

import subprocess
import sys

import pytest

from cluster.spec import PROJECT_DIR

VERB = """\
from cluster.cli import make_parser, run_verb
from cluster.errors import ClusterError

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
    )


@pytest.mark.parametrize(
    ("body", "exit_code"),
    [
        ("return {'much': 'x' * 10**6}", 0),
        ("raise ClusterError('a link is broken', document={'much': 'x' * 10**6})", 1),
    ],
)
def test_a_document_that_nobody_reads_changes_no_exit_code(body, exit_code):
    """As in `status --json | head -1`, of a large cluster."""
    running = start(VERB.format(body=body, words="['--json']"))
    running.stdout.close()
    assert "Traceback" not in running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=20) == exit_code


def test_messages_that_nobody_reads_change_no_exit_code():
    body = "[Console().say('x' * 1000) for _ in range(1000)]"
    code = "from cluster.console import Console\n" + VERB.format(body=body, words="[]")
    running = start(code)
    running.stderr.close()
    running.stdout.close()
    assert running.wait(timeout=20) == 0


SIGNALS = """\
import os, signal
from cluster.cli import hear_signals

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
