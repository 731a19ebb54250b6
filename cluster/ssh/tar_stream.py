"""Reads a tar archive from an untrusted sender: as a stream, with little memory, up to a size limit.

Not the standard library's `tarfile`: that reads names of any length into memory, decompresses gzip bombs unasked, and
its filter for hostile archives is missing in Python 3.11.2 and could be bypassed until June 2025. This module supports
only what `tar --format=gnu` writes: plain files, folders, links, long names. It reports all other members as OTHER.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

BLOCK = 512
PIECE = 1 << 20
MOST_NAME_BYTES = 4096  # Linux's PATH_MAX
# Allowed after the end: tar pads its last record, which is 10 KiB by default.
MOST_PADDING_BYTES = 1 << 20
# The least disk space of a file or folder, even an empty one: millions of them fill a disk, too.
LEAST_BYTES_ON_DISK = 4096
LONG_NAME, LONG_TARGET = b"L", b"K"


class BadArchive(Exception):
    """The archive is damaged, not a tar archive, or larger than the limit; the message says which."""


class Kind(Enum):
    """The kind of a member of an archive."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARD_LINK = "hard link"
    OTHER = "neither file nor folder"


KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.SYMLINK,
    b"5": Kind.FOLDER,
}
WITHOUT_CONTENT = (Kind.FOLDER, Kind.SYMLINK, Kind.HARD_LINK)


@dataclass(frozen=True)
class Member:
    """One entry of an archive, with its header's values: none of them is validated.

    Attributes:
        name: its path; bytes that are not UTF-8 are surrogate escapes, as in Python's file names.
        target: the target of a link.
        size: bytes of content.
        mtime: Unix time.
    """

    name: str
    kind: Kind
    target: str
    size: int
    mtime: int
    is_executable: bool


class TarStream:
    """The members of an archive that arrives in pieces.

    Args:
        pieces: the archive.
        limit_bytes: the most bytes to read; files and folders count with the least space that they take on a disk.
    """

    def __init__(self, pieces: Iterator[bytes], limit_bytes: int) -> None:
        self._pieces = pieces
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._rest = memoryview(b"")
        self._content_bytes = 0  # unread content of the current member, with its padding
        self.is_empty = False
        """Whether the stream had no bytes at all."""

    def __iter__(self) -> Iterator[Member]:
        """Yield every member; `content` reads that of the latest one, and unread content is skipped.

        Raises:
            BadArchive: the archive is damaged, not a tar archive, or larger than the limit.
        """
        long: dict[bytes, str] = {}
        while header := self._header():
            kind, size = header[156:157], _number(header[124:136])
            if kind in (LONG_NAME, LONG_TARGET):
                long[kind] = self._long_text(size)
                continue
            member = _member(header, size, long)
            self._content_bytes = 0 if member.kind in WITHOUT_CONTENT else _whole_blocks(size)
            self.spend(max(0, LEAST_BYTES_ON_DISK - BLOCK - self._content_bytes))
            if self._content_bytes > self._left_bytes:
                raise self._too_large(f"with {member.name} of {size / 1e6:.6g} MB ")
            yield member
            for _ in self._read(self._content_bytes):
                pass
            long = {}
        if not self.is_empty:
            self._read_padding()

    def content(self, member: Member) -> Iterator[memoryview]:
        """Yield the content of the latest member, piece by piece."""
        left = member.size
        for piece in self._read(self._content_bytes):
            yield piece[:left]
            left -= min(left, len(piece))
            if not left:
                break

    def spend(self, count: int) -> None:
        """Count bytes against the limit; also those that the caller writes without reading them from the archive.

        Raises:
            BadArchive: the limit is exceeded.
        """
        if count > self._left_bytes:
            raise self._too_large()
        self._left_bytes -= count

    def _too_large(self, why: str = "") -> BadArchive:
        return BadArchive(f"{why}they are more than the limit of {self._limit_bytes / 1e6:.6g} MB")

    def _header(self) -> bytes:
        """Return the next header, verified by its checksum; empty at the end."""
        header = self._block()
        if not header or not any(header):
            return b""
        said = _number(header[148:156])
        if said != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise BadArchive("what the node sent is no tar archive, or a damaged one")
        return header

    def _block(self) -> bytes:
        """Return one block; empty if the stream has no bytes at all."""
        if not self._fill() and self._left_bytes == self._limit_bytes:
            self.is_empty = True
            return b""
        return b"".join(bytes(piece) for piece in self._read(BLOCK))

    def _long_text(self, size: int) -> str:
        """Return a name that is too long for its member's own header."""
        if size > MOST_NAME_BYTES + 1:
            raise BadArchive(f"a name in the archive has {size} bytes")
        content = b"".join(bytes(piece) for piece in self._read(_whole_blocks(size)))
        return _text(content[:size])

    def _read(self, count: int) -> Iterator[memoryview]:
        """Yield `count` bytes, piece by piece."""
        while count:
            if not self._fill():
                raise BadArchive("the archive ends in the middle")
            piece = self._rest[:count]
            self._rest = self._rest[len(piece) :]
            self.spend(len(piece))
            count -= len(piece)
            self._content_bytes = max(0, self._content_bytes - len(piece))
            yield piece

    def _fill(self) -> bool:
        """Ensure that unread bytes are available; return False at the end of the stream."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._rest = memoryview(piece)
        return True

    def _read_padding(self) -> None:
        """Read to the end of the stream, so that the sender can finish."""
        left = MOST_PADDING_BYTES
        while self._fill():
            left -= len(self._rest)
            if left < 0:
                raise BadArchive("the archive goes on after its end")
            self._rest = memoryview(b"")


def _member(header: bytes, size: int, long: dict[bytes, str]) -> Member:
    return Member(
        name=long.get(LONG_NAME) or _text(header[:100]),
        kind=KINDS.get(header[156:157], Kind.OTHER),
        target=long.get(LONG_TARGET) or _text(header[157:257]),
        size=size,
        mtime=0 if header[136] == 0xFF else _number(header[136:148]),  # before 1970
        is_executable=bool(_number(header[100:108]) & 0o100),
    )


def _text(field: bytes) -> str:
    """Decode a field up to its first NUL."""
    return os.fsdecode(field.partition(b"\0")[0])


def _number(field: bytes) -> int:
    """Parse octal digits, or GNU's binary format for larger numbers; never negative.

    Raises:
        BadArchive: the field is neither.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    if not set(digits) <= set(b"01234567"):
        raise BadArchive("what the node sent is no tar archive, or a damaged one")
    return int(digits or b"0", 8)


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
