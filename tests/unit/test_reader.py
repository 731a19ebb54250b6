"""The reader of documents between host and node: strict, with errors that name the key; and the page made from them."""

import json
from typing import Annotated, NamedTuple

import pytest

from cluster.base.paths import PROJECT_DIR
from protocol.__main__ import ORDER, page, words_of
from protocol.reader import (
    COUNT,
    MOST_LEVELS,
    WORD,
    FormatError,
    document,
    one_of,
    parse,
    read,
    within,
)


class Part(NamedTuple):
    """A nested document."""

    name: Annotated[str, WORD]
    share: Annotated[float, within(0, 1)] = 1.0


class Whole(NamedTuple):
    """A document with a field of each kind."""

    parts: list[Part]
    by_name: dict[str, Part]
    pair: tuple[str, int]
    kind: Annotated[str, one_of("good", "bad")]
    count: Annotated[int, COUNT] | None
    anything: object = None


GOOD = {
    "parts": [{"name": "one", "share": 0.5}, {"name": "two"}],
    "by_name": {"three": {"name": "three"}},
    "pair": ["a", 5],
    "kind": "good",
    "count": None,
}


def test_a_document_becomes_what_it_says_and_back():
    whole = parse(Whole, json.dumps(GOOD))
    assert whole.parts == [Part("one", 0.5), Part("two")]
    assert (whole.pair, whole.count, whole.anything) == (("a", 5), None, None)
    assert read(Whole, document(whole)) == whole
    assert read(Whole, json.loads(json.dumps(document(whole)))) == whole


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: {"a": 1, "b": one}])
def test_any_value_is_as_deep_as_it_may_be_and_no_deeper(wrap):
    """What is deeper than Python can write would end the host's commands later, without the name of the node."""
    deep = "end"
    for _ in range(MOST_LEVELS):
        deep = wrap(deep)
    assert read(Whole, changed(anything=deep)).anything == deep
    with pytest.raises(FormatError, match="anything: nested more than 20 levels deep"):
        read(Whole, changed(anything=wrap(deep)))


@pytest.mark.parametrize(
    "many", [[0] * 9, dict.fromkeys("abcdefghi"), [[0], [[]], {"a": [0, 0, 0]}]]
)
def test_any_value_has_so_many_values_and_no_more(monkeypatch, many):
    """Of a node's answer of 64 MiB, small objects would take 1.4 GB of the host's memory."""
    monkeypatch.setattr("protocol.reader.MOST_ITEMS", 10)
    assert read(Whole, changed(anything=many)).anything == many
    with pytest.raises(FormatError, match="anything: more than 10 values"):
        read(Whole, changed(anything=[many]))


def changed(**values):
    return GOOD | values


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, "expected an object, got 5"),
        (changed(count=-1), "count: expected no negative number, got -1"),
        (changed(count=True), "count: expected a whole number, got True"),
        (changed(count=10**400), "count: expected a whole number, got a huge number"),
        (changed(kind="ugly"), "kind: expected one of good, bad, got 'ugly'"),
        (changed(parts={}), "parts: expected a list, got {}"),
        (changed(parts=[GOOD["parts"][0], 7]), "parts[1]: expected an object, got 7"),
        (changed(parts=[{"name": "a b"}]), "parts[0].name: expected one word, got 'a b'"),
        (changed(parts=[{"name": "a", "share": 2}]), "parts[0].share: 2 is not between 0 and 1"),
        (changed(parts=[{"name": "a", "share": 10**400}]), "parts[0].share: expected a number"),
        (changed(parts=[{"name": "a", "share": float("nan")}]), "share: expected a number"),
        (changed(by_name={"x": {"name": 1}}), "by_name.x.name: expected a text, got 1"),
        (changed(pair=["a"]), "pair: expected a list of 2"),
        (changed(pair=["a", "b"]), "pair[1]: expected a whole number, got 'b'"),
        (changed(kinds="good"), "kinds: unknown key, did you mean kind?"),
        ({key: value for key, value in GOOD.items() if key != "pair"}, "pair: missing"),
    ],
)
def test_an_error_names_the_key(value, words):
    with pytest.raises(FormatError) as refused:
        read(Whole, value)
    assert words in str(refused.value)
    with pytest.raises(FormatError) as refused:
        read(Whole, value, "the order")
    assert str(refused.value).startswith("the order")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, "9" * 5000])
def test_a_text_that_is_none_is_refused_in_a_short_line(text):
    with pytest.raises(FormatError) as refused:
        parse(Whole, text, "an answer")
    assert str(refused.value).startswith("an answer: ") and len(str(refused.value)) < 300


def test_values_are_cut_short_in_errors():
    with pytest.raises(FormatError) as refused:
        read(Whole, changed(kind="x" * 10**6))
    assert len(str(refused.value)) < 200


def test_a_key_of_a_node_is_cut_short_in_errors():
    with pytest.raises(FormatError) as refused:
        read(Whole, {"x" * 10**6: 1})
    assert len(str(refused.value)) < 200


def test_formats_md_is_what_the_sources_say():
    written = (PROJECT_DIR / "docs" / "formats.md").read_text(encoding="utf-8")
    assert written == page(), "python -m protocol > docs/formats.md"


def test_every_module_with_documents_is_on_the_page():
    there = {path.stem for path in (PROJECT_DIR / "protocol").glob("*.py")}
    assert set(ORDER) == there - {
        "__init__",
        "__main__",
        "reader",
        "lines",
        "values",
        "gilbert",
        "checkpoint_name",
    }


def test_types_are_told_in_words():
    assert words_of(Annotated[int, COUNT] | None) == "whole number, no negative number or null"
    assert words_of(dict[str, list[float]]) == "object: text → list of number"
    assert words_of(tuple[str, str]) == "[text, text]"
