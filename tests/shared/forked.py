"""Runs `python -m MODULE …` in a process forked from one with the verbs' imports, which otherwise take 0.4 s per run.

The module runs as with `python -m`, in its own process with its own standard streams, signals and exit code, and ends
as Python ends. The only difference is that some modules are already imported.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[2]
# They import all others but the verbs' own modules, which run anew; what the last three are for is imported late.
IMPORTED = ("cluster.run.runner", "cluster.api", "cluster.status", "cluster.contract.measure")
IMPORTED += ("docker", "paramiko", "rich.console")
MOST_BYTES = 1 << 18  # of a command line with its environment


def run_forked(module, words, timeout_s):
    """Run it like `subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, …)`."""
    order = json.dumps([module, words, dict(os.environ)]).encode()
    mine, theirs = socket.socketpair()
    with mine, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with theirs:
            socket.send_fds(_server(), [order], [theirs.fileno(), out.fileno(), err.fileno()])
        code = _wait(mine, timeout_s)
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


@cache
def _server():
    """Start the server, which ends when this process ends; return the socket for orders."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        argv = [sys.executable, __file__, str(theirs.fileno())]
        server = subprocess.Popen(
            argv,
            cwd=PROJECT_DIR,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(lambda: (ours.close(), server.wait()))
    return ours


def _wait(connection, timeout_s):
    """Return the exit code, -N after signal N; kill the process if waiting is interrupted."""
    with connection.makefile() as lines:
        pid = int(lines.readline())
        connection.settimeout(timeout_s)
        try:
            return int(lines.readline())
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise


def _text(file):
    file.seek(0)
    return file.read().decode()


def serve(orders):
    """Fork a process for each order; only these return, with what to run. The server itself ends here."""
    while True:
        data, fds, _, _ = socket.recv_fds(orders, MOST_BYTES, 3)
        if not data:
            sys.exit()
        # it waits for the process that runs the module, whose parent the client is not
        if os.fork() == 0:
            answer = socket.socket(fileno=fds[0])
            if (pid := os.fork()) == 0:
                answer.close()
                orders.close()
                return _become(data, fds[1:])
            with suppress(OSError):  # the client no longer waits
                answer.sendall(f"{pid}\n".encode())
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                answer.sendall(f"{code}\n".encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(data, streams):
    """Take on the streams, environment and command line of an order; return the module to run."""
    module, words, environ = json.loads(data)
    for stream, fd in enumerate(streams, 1):
        os.dup2(fd, stream)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    return module


if __name__ == "__main__":
    sys.path[0] = str(PROJECT_DIR)  # as for `python -m`
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # keeps the memory pages of imported modules shared
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        module = serve(connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
