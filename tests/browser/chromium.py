"""Drives Debian's headless Chromium over its debugging pipe, with only the standard library: no driver, no port.

Chromium reads NUL-terminated JSON commands from its file descriptor 3, and writes replies and events to 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

TIMEOUT_S = 180.0  # of one command: only a browser that hangs takes so long
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe"),
)


class Chromium:
    """A browser without a profile. Use as a context manager."""

    def __init__(self, program="chromium"):
        self.program = program

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="gradwire-chromium-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        # The child needs its ends as 3 and 4. They are moved to high numbers first, as any of the four may already be
        # 3 or 4.
        high_in, high_out = (os.dup2(fd, 100 + i) for i, fd in enumerate((theirs_in, theirs_out)))
        argv = [self.program, *FLAGS, f"--user-data-dir={self.home}", "about:blank"]
        shell = 'exec "$@" 3<&100 4>&101 100<&- 101>&-'
        self.log = Path(self.home, "log").open("wb")
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "-", *argv],
            pass_fds=(high_in, high_out),
            stdout=self.log,
            stderr=self.log,
        )
        for fd in (theirs_in, theirs_out, high_in, high_out):
            os.close(fd)
        self.number, self.unread, self.events = 0, b"", []
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method, params=None, session=None):
        """Send one command and return its result. Events that arrive meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._read(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self, until):
        while b"\0" not in self.unread:
            if not select.select([self.into], [], [], max(0.0, until - time.monotonic()))[0]:
                raise RuntimeError("Chromium does not answer")
            found = os.read(self.into, 1 << 20)
            if not found:
                raise RuntimeError(f"Chromium has ended: {self._said()}")
            self.unread += found
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def _said(self):
        return Path(self.home, "log").read_text(errors="replace")[-2000:]

    def open(self, url, *, width_px, dark=False, scripting=True):
        """Return a page of this width, after it has been loaded."""
        return Tab(self, url, width_px, dark, scripting)


class Tab:
    """One page: its requests, its console, its content."""

    def __init__(self, browser, url, width_px, dark, scripting):
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.target = target
        attached = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.call("Emulation.setScriptExecutionDisabled", {"value": not scripting})
        browser.events.clear()
        self.call("Page.navigate", {"url": url})
        self._wait_until_loaded()

    def call(self, method, params=None):
        return self.browser.call(method, params, self.session)

    def _wait_until_loaded(self):
        until = time.monotonic() + TIMEOUT_S
        while not self._happened("Page.loadEventFired"):
            self.browser.events.append(self.browser._read(until))

    def _happened(self, method):
        events = self.browser.events
        return [
            e["params"]
            for e in events
            if e.get("method") == method and e.get("sessionId") == self.session
        ]

    def requests(self):
        """Return the requested addresses, without that of the page itself."""
        return [one["request"]["url"] for one in self._happened("Network.requestWillBeSent")][1:]

    def said(self):
        """Return the console's content: errors of the page and the browser, and everything logged."""
        logged = [one["entry"]["text"] for one in self._happened("Log.entryAdded")]
        called = [str(one["args"]) for one in self._happened("Runtime.consoleAPICalled")]
        thrown = [
            one["exceptionDetails"]["text"] for one in self._happened("Runtime.exceptionThrown")
        ]
        return logged + called + thrown

    def evaluate(self, expression):
        """Return the value of an expression, or the result of its promise. Also works with the page's scripting off."""
        result = self.call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True},
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def media(self, name):
        self.call("Emulation.setEmulatedMedia", {"media": name})

    def screenshot(self):
        """Return the whole page as PNG."""
        shot = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def close(self):
        self.browser.call("Target.closeTarget", {"targetId": self.target})
