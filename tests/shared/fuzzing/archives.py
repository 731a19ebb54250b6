"""Archives of results as a hostile node would send them."""

import json

from hypothesis import strategies as st
from tars import archive, member

from fuzzing.documents import example
from fuzzing.mutations import damaged
from protocol.metrics import Start

METRICS = json.dumps({"event": "start", **example(Start)}).encode() + b"\n"
NAMES = (
    *(
        "./metrics.jsonl",
        "./collectives.jsonl",
        "./model.pt",
        "./checkpoint-5-1.pt",
        "checkpoint-5-0.pt",
    ),
    *(
        "./",
        ".",
        "..",
        "../victim",
        "../../victim",
        "/etc/passwd",
        "./a",
        "./a/b",
        "./a/../../victim",
    ),
    *(
        "a/" * 150 + "x",
        "x" * 300,
        "./\udcff",
        "./new\nline",
        "./\x1b[2J",
        "./files/node1/x",
        "./a/",
    ),
)
TARGETS = (
    *NAMES,
    "/run/here/a",
    "/run/here",
    "/run/here/../victim",
    "b",
    "../../../victim",
    "/dev/zero",
)


def _member(name, kind, target, content, size, mode):
    one = member(name, content, kind=kind, to=target, mode=mode)
    if size is None:
        return one
    header = bytearray(one[:512])
    header[124:136] = size
    return bytes(header) + one[512:]


MEMBERS = st.builds(
    _member,
    st.sampled_from(NAMES),
    st.sampled_from((None, None, None, "link", "hard", "folder", "pipe", "device")),
    st.sampled_from(TARGETS),
    st.one_of(st.sampled_from((b"", METRICS, bytes(3000))), st.binary(max_size=100)),
    st.one_of(
        st.none(),
        st.none(),
        st.sampled_from(
            (b"77777777777\0", b"-1         \0", bytes([0x80]) + b"\xff" * 11, b"\0" * 12)
        ),
        st.binary(min_size=12, max_size=12),
    ),
    st.sampled_from((0o644, 0o4755, 0)),
)


@st.composite
def archives(draw):
    """Draw tar's standard output, its exit code, and its standard error."""
    data = archive(*draw(st.lists(MEMBERS, max_size=8)))
    code = draw(st.sampled_from((0, 0, 0, 1, 2, 44, 99, -1000)))
    return draw(damaged(data)), code, draw(st.one_of(st.just(b""), st.binary(max_size=50)))
