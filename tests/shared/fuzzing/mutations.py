"""Makes good documents odd: values replaced, keys lost, doubled and misspelt, text cut, bytes that are not text.

A document is a tree of lists, `Pairs` (a mapping that may have a key twice), plain values, and `Raw`: text that is
written to the file as it is. Trees are written in YAML's flow style, of which JSON is a part.
"""

import copy
import itertools
import json

from hypothesis import strategies as st

# As by default, but without a table of all that UTF-8 can encode, which takes seconds to make.
CHARACTERS = st.characters(exclude_categories=["Cs"])
NINES = "9" * 400
LAUGHS = "{a: &a [lol], " + ", ".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]"
    for below, name in itertools.pairwise("abcdefghijkl")
)
WORDS = (
    *(
        "",
        " ",
        "~",
        "node1",
        "node9",
        "node1:node2",
        "auto",
        "step 5",
        "step ²",
        "5s",
        "1e9h",
        "best",
    ),
    *("../../../tmp/x.yml", "./none.yml", "/etc/passwd", "/dev/null", ".", "a/" * 600, "x" * 300),
    *(
        "a\0b",
        "a\0/b.yml",
        "two\nlines",
        "\x1b[2J\x1b]0;x\a",
        "\u202eback",
        "ü" * 50,
        "💥",
        "\ud800",
    ),
    *("-1", "0x10", NINES, "nan", "-inf", "{}", "$HOME", "%s%n", "--help", "x" * 20_000),
)
NUMBERS = (
    *(0, -1, 1, 2, 3, 64, 100, 2**31, 2**63, 2**64, 10**30, -(10**19), 10**120),
    *(0.5, -0.0, 1e-320, 1e20, 1e300, 1.7e308, float("nan"), float("inf"), float("-inf")),
)
OF_BOTH = (NINES, "9" * 5000, "[" * 400 + "]" * 400, "[" * 20_000, "1e400", "-1e400")
OF_YAML = (
    *(
        ".nan",
        ".inf",
        "-.Inf",
        "~",
        "0o17",
        "0x" + "f" * 500,
        "1_0",
        "1:30:00",
        "2026-13-45",
        "=",
        "<<",
    ),
    *(
        "2026-01-02 03:04:05",
        "!!int x",
        "!!float ''",
        "!!bool maybe",
        "!!binary '*'",
        "!!set {a, b}",
    ),
    *("!!omap [a: 1]", "!!python/object/apply:os.system [x]", "!!timestamp x", "!x y", "!!null 5"),
    *("&r [*r]", "&r {a: *r}", "*none", "{<<: 5}", "{<<: [1]}", "{? [1, 2] : 3}", "{? {a: 1} : 2}"),
    *('"\\ud800"', '"\\0"', '"\\x1b[2J"', "'", "%", "@x", "|", "\t", "{[}", f"{LAUGHS}}}"),
)
OF_JSON = (
    "NaN",
    "Infinity",
    "-Infinity",
    '"\\ud800"',
    '"\\u0000"',
    "{",
    '{"a": 1, "a": 2}',
    "+1",
    "01",
)
BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    b"\r",
    b"\n",
    b"\x1b[2J",
    b"\n\n---\n",
    b"\t",
    b": ",
    b"- ",
    b"\xef\xbb\xbf",
)


class Raw(str):
    """Text that is written to the file as it is."""


class Pairs(list):
    """A mapping as a list of keys and values, so that a key may occur twice."""


def tree(value):
    """Return a parsed document as a tree."""
    if isinstance(value, dict):
        return Pairs([key, tree(one)] for key, one in value.items())
    return [tree(one) for one in value] if isinstance(value, list | tuple) else value


def flow(one):
    """Return a tree as text, which is JSON if it has no Raw."""
    if isinstance(one, Raw):
        return str(one)
    if isinstance(one, Pairs):
        return "{" + ", ".join(f"{_key(key)}: {flow(value)}" for key, value in one) + "}"
    if isinstance(one, list):
        return "[" + ", ".join(map(flow, one)) + "]"
    return json.dumps(one, default=str)


def _key(key):
    return str(key) if isinstance(key, Raw) else json.dumps(str(key))


def odd_values(raws):
    """Any values that may replace others."""
    return st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(NUMBERS),
        st.sampled_from([Raw(text) for text in (*OF_BOTH, *raws)]),
        st.sampled_from([None, True, False, [], Pairs(), [[]], [None], Pairs([["a", 1]])]),
        st.integers(),
        st.floats(),
        st.text(CHARACTERS, max_size=20),
    )


YAML_VALUES, JSON_VALUES = odd_values(OF_YAML), odd_values(OF_JSON)


def _places(one, above=None, at=0):
    """Yield every place in a tree: its container, and the index in it. (None, 0) is the whole."""
    yield above, at
    for index, below in enumerate(one if isinstance(one, list) else ()):
        if isinstance(one, Pairs):
            yield from _places(below[1], below, 1)
            yield one, index
        else:
            yield from _places(below, one, index)


def _at(container, at):
    """Return the value in a place; for an entry of a mapping, the entry's value."""
    one = container[at]
    return one[1] if isinstance(container, Pairs) else one


@st.composite
def mutated(draw, documents, values=YAML_VALUES):
    """Draw one of these documents as a tree, with up to three places changed; rarely, with all of it replaced."""
    root = [tree(draw(st.sampled_from(documents)))]
    others = [copy.deepcopy(_at(*place)) for place in _places(root[0]) if place[0] is not None] or [
        None
    ]
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 1, 2, 2, 3)))):
        if not root:
            return Raw("")
        places = [place for place in _places(root[0]) if place[0] is not None] or [(root, 0)]
        container, at = places[draw(st.integers(0, len(places) - 1))]
        _change(draw, container, at, values, others)
    if draw(st.integers(0, 40)) == 1:
        root = [copy.deepcopy(draw(values))]
    return root[0] if root else Raw("")


WAYS = ("value", "value", "near", "near", "near", "other", "other", "lose", "double", "key", "wrap")


def _change(draw, container, at, values, others):
    """Change one place; an entry of a mapping may also be lost, doubled or misspelt."""
    how, is_entry = draw(st.sampled_from(WAYS)), isinstance(container, Pairs)
    if how in ("lose", "double") and _is_pair(container):
        how = "near"
    if how == "lose":
        del container[at]
    elif how == "double":
        one = container[at]
        container += [copy.deepcopy(one) for _ in range(draw(st.sampled_from((1, 1, 2, 70))))]
    elif is_entry and how == "key":
        new = draw(st.one_of(st.text(CHARACTERS, max_size=8), values.map(_as_key)))
        container[at] = [new, container[at][1]]
    elif is_entry:
        new = copy.deepcopy(_value(draw, container[at][1], how, values, others))
        container[at] = [container[at][0], new]
    else:
        container[at] = copy.deepcopy(_value(draw, container[at], how, values, others))


def _value(draw, old, how, values, others):
    """Draw a replacement: an odd value, another value of the document, or nearly the same one."""
    if how == "other":
        return draw(st.sampled_from(others))
    if how == "wrap":
        return [old] if draw(st.booleans()) else Pairs([["x", old]])
    if how == "near" and isinstance(old, int | float) and not isinstance(old, bool):
        return draw(st.sampled_from((-old, old * 2, old + 1, old / 3, old * 1000, 0, str(old))))
    if how == "near" and isinstance(old, list) and old:
        return type(old)(old[draw(st.integers(0, len(old) - 1)) :])
    if how == "near" and isinstance(old, bool):
        return not old
    return draw(values)


def _is_pair(container):
    """Return whether it may be an entry of a mapping: key and value."""
    return (
        not isinstance(container, Pairs) and len(container) == 2 and isinstance(container[0], str)
    )


def _as_key(value):
    return value if isinstance(value, str) else str(value)


@st.composite
def damaged(draw, data):
    """Draw bytes that are usually unchanged; otherwise cut, partly doubled, or with other bytes inserted."""
    how = draw(st.sampled_from((*("none",) * 9, "cut", "lose", "double", "insert", "flip")))
    start = draw(st.integers(0, len(data)))
    length = draw(st.integers(1, 40))
    if how == "cut":
        return data[:start]
    if how == "lose":
        return data[:start] + data[start + length :]
    if how == "double":
        return data[: start + length] + data[start:]
    if how == "insert":
        return (
            data[:start]
            + draw(st.one_of(st.sampled_from(BYTES), st.binary(max_size=9)))
            + data[start:]
        )
    if how == "flip" and start < len(data):
        return data[:start] + bytes([data[start] ^ 1 << length % 8]) + data[start + 1 :]
    return data


@st.composite
def texts(draw, documents, values=YAML_VALUES):
    """Draw the bytes of a file: one of these documents, mutated and then perhaps damaged."""
    text = flow(draw(mutated(documents, values)))
    return draw(damaged(text.encode("utf-8", "surrogatepass")))


def answers(documents):
    """Draw the bytes of an answer in JSON."""
    return texts(documents, JSON_VALUES)


@st.composite
def line_files(draw, documents):
    """Draw the bytes of a file of JSON lines, a few of which are changed, doubled, lost or out of order."""
    rows = [flow(tree(one)).encode() for one in documents]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(rows) - 1)))
        new = flow(draw(mutated(documents, JSON_VALUES))).encode("utf-8", "surrogatepass")
        rows[at : at + draw(st.integers(0, 3))] = [new] * draw(st.sampled_from((1, 1, 1, 2, 0)))
    return draw(damaged(b"\n".join(rows) + b"\n"))
