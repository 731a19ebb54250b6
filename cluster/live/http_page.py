"""Serves the state of a run as a web page on this machine: only on 127.0.0.1, as long as the run lasts.

`/` is the page (page.html, which renders the document itself), `/events` streams each new state (server-sent events),
`/state` is the last one. Only requests whose Host header names this machine are answered, against DNS rebinding: a
foreign page in the same browser could otherwise read the state under a host name that it resolves to 127.0.0.1.
"""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cluster.base.errors import ClusterError

ADDRESS, HTTP_PORT = "127.0.0.1", 80
PAGE = Path(__file__).with_name("page.html")
MOST_READERS = 16
ALIVE_S = 5.0  # after this long without news, a comment tests whether the reader is still there
WRITE_TIMEOUT_S = 10.0
INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class HttpPage:
    """A page that is served from construction until `close`.

    Args:
        port: the port, 0 to 65535; 0 picks any free one.

    Raises:
        ClusterError: the port is taken, or not permitted.
    """

    def __init__(self, port: int) -> None:
        self._news = threading.Condition()
        self._number, self._text, self._is_over = 0, "", False
        try:
            self._server = _Server((ADDRESS, port), _Handler)
        except OSError as error:
            raise ClusterError(
                f"port {port} of {ADDRESS} cannot be used: {error.strerror}", "--http 0"
            ) from None
        self._server.page = self
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://{ADDRESS}:{self._server.server_port}/"

    def show(self, text: str, *, is_last: bool = False) -> None:
        """Publish a state document, given as one line of JSON."""
        with self._news:
            self._number, self._text = self._number + 1, text
            self._is_over = self._is_over or is_last
            self._news.notify_all()

    def close(self) -> None:
        """Stop serving; readers are told that nothing more comes."""
        with self._news:
            self._is_over = True
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    @property
    def text(self) -> str:
        """The last state document; '' before the first."""
        return self._text

    def states(self) -> Iterator[str]:
        """Yield the current state document, then each new one; '' after ALIVE_S without news. Ends with the run."""
        seen = 0
        while True:
            with self._news:
                if self._number == seen and not self._is_over:
                    self._news.wait(ALIVE_S)
                is_new, is_over = self._number != seen, self._is_over
                seen, text = self._number, self._text
            if is_new or not is_over:
                yield text if is_new else ""
            if is_over:
                return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    page: HttpPage

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - the base class's signature
        super().__init__(*args)
        self.readers = threading.BoundedSemaphore(MOST_READERS)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - likewise
        """Ignore readers that have disconnected: a traceback would disturb the screen."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = WRITE_TIMEOUT_S
    server_version, sys_version = "gradwire", ""

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        """Answer the request if it names this machine."""
        if not self._names_this_machine():
            self.send_error(403)
        elif self.path == "/":
            self._send_page()
        elif self.path == "/state":
            self._send("application/json", self.server.page.text.encode() or b"null")
        elif self.path == "/events":
            self._send_events()
        else:
            self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Log nothing: standard error belongs to the launch."""

    def end_headers(self) -> None:
        """Add the headers that all responses have."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def _names_this_machine(self) -> bool:
        port = self.server.server_port
        ends = (f":{port}", "") if port == HTTP_PORT else (f":{port}",)  # browsers leave it out
        return self.headers.get("Host") in [f"{n}{e}" for n in (ADDRESS, "localhost") for e in ends]

    def _send_page(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        self._send("text/html; charset=utf-8", page.encode(), content_policy(page))

    def _send(self, kind: str, body: bytes, policy: str = "default-src 'none'") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self) -> None:
        if not self.server.readers.acquire(blocking=False):
            self.send_error(503)
            return
        with _released(self.server.readers), suppress(OSError):
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for text in self.server.page.states():
                self.wfile.write(f"data: {text}\n\n".encode() if text else b": alive\n\n")
            self.wfile.write(b"event: over\ndata: \n\n")
        self.close_connection = True


def content_policy(page: str) -> str:
    """Return a policy that allows only the page's own script and style, by hash, and requests only to us."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for kind, text in INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    parts = ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"]
    parts += ["frame-ancestors 'none'", "img-src data:"]
    return "; ".join(parts + [f"{kind}-src {' '.join(found)}" for kind, found in hashes.items()])


@contextmanager
def _released(readers: threading.BoundedSemaphore) -> Iterator[None]:
    try:
        yield
    finally:
        readers.release()
