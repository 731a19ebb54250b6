"""Splits a program's output into lines, in time linear in its length, whatever it prints. Pure."""

import re
from collections.abc import Iterable, Iterator

END = re.compile(rb"([\r\n])")
LONGEST_LINE_BYTES = 65536


def split_lines(chunks: Iterable[bytes], longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
    """Yield the lines of a stream of chunks, without line ends; lines longer than `longest_bytes` come in pieces.

    A carriage return alone ends a line, too: progress bars write nothing else. Several in a row end one line; after
    `longest_bytes` of them an empty line comes, so that whoever reads a stream of nothing else can stop.
    """
    held: list[bytes] = []  # the parts of the unfinished line
    size = 0
    returned = False  # a carriage return ended the previous line; its newline may follow
    skipped = 0  # line ends since the last line
    for chunk in chunks:
        *parts, rest = END.split(chunk)
        for piece, end in zip(parts[::2], parts[1::2], strict=True):
            line = b"".join([*held, piece])
            held, size, skipped = [], 0, skipped + 1
            if line or (end == b"\n" and not returned) or skipped >= longest_bytes:
                yield from _pieces(line, longest_bytes)
                skipped = 0
            returned = end == b"\r" and (returned or bool(line))
        held.append(rest)
        size += len(rest)
        if size > longest_bytes:
            *full, rest = _cut(b"".join(held), longest_bytes)
            yield from (_text(piece) for piece in full)
            held, size = [rest], len(rest)
    if size:
        yield from _pieces(b"".join(held), longest_bytes)


def _pieces(line: bytes, longest_bytes: int) -> Iterator[str]:
    return (_text(piece) for piece in _cut(line, longest_bytes))


def _cut(line: bytes, longest_bytes: int) -> list[bytes]:
    """Cut a line into pieces, between UTF-8 characters; the last piece is empty only if the line is."""
    pieces, start = [], 0
    while len(line) - start > longest_bytes:
        end = start + longest_bytes
        while line[end] & 0xC0 == 0x80 and end > start + longest_bytes - 4:
            end -= 1
        pieces.append(line[start:end])
        start = end
    return [*pieces, line[start:]]


def _text(piece: bytes) -> str:
    return piece.decode(errors="replace")
