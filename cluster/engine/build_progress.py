"""The progress of an image build, parsed from the output of apt and pip: download size and percentage.

The Dockerfile makes both print machine-readable lines: apt's status lines (APT::Status-Fd) and pip's raw progress.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

BUILDKIT_PREFIX = re.compile(r"^#\d+ (?:\d+\.\d+ )?")
NEED_TO_GET = re.compile(r"Need to get (?:\S+ \S+/)?([\d.,]+ \wB) ")
APT_STATUS = re.compile(r"(dlstatus|pmstatus):[^:]*(?::\w+)?:([\d.]+):(.*)")
PIP_FILE = re.compile(r"\s*Downloading (\S+)(?: \([^)]*\))?$")
PIP_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")  # of the file that PIP_FILE's line named
SOON_S = 2.0  # an estimate of the remaining time made earlier than this is too inaccurate


@dataclass
class BuildProgress:
    """A parser of a build's output, fed line by line.

    Args:
        clock: returns seconds since an arbitrary start.
    """

    clock: Callable[[], float] = time.monotonic
    _size: str = "packages"
    _file: str = ""
    _began_s: float | None = field(default=None, init=False)

    def news(self, line: str) -> str:
        """Return a line for the user: the progress that the given line reports, or the line itself."""
        line = BUILDKIT_PREFIX.sub("", line)
        if found := NEED_TO_GET.match(line):
            self._size = found[1]
        if found := APT_STATUS.fullmatch(line):
            return self._apt(found[1], float(found[2]), found[3])
        if found := PIP_PROGRESS.fullmatch(line):
            return self._download(self._file, 100 * int(found[1]) / max(1, int(found[2])))
        if found := PIP_FILE.fullmatch(line):
            self._file, self._began_s = found[1], None
        return line.strip()

    def _apt(self, kind: str, percent: float, text: str) -> str:
        if kind == "dlstatus":
            return self._download(self._size, percent)
        return f"installing: {percent:.0f} %, {text}"

    def _download(self, what: str, percent: float) -> str:
        now_s = self.clock()
        self._began_s = now_s if self._began_s is None else self._began_s
        took_s = now_s - self._began_s
        left = f", {took_s * (100 / percent - 1):.0f} s left" if percent and took_s > SOON_S else ""
        name = what if len(what) < 40 else what[:37] + "…"
        return f"downloading {name}: {percent:.0f} %{left}"


def is_progress(line: str) -> bool:
    """Return whether a line reports progress alone, and so does not help to explain a failure."""
    line = BUILDKIT_PREFIX.sub("", line)
    return bool(APT_STATUS.fullmatch(line) or PIP_PROGRESS.fullmatch(line))
