"""Extracts an archive from a node into a folder: plain files and folders, and nothing outside of the folder.

Links are never created. A link to another file of the archive becomes a copy of that file. Every file and folder is
opened relative to its parent's descriptor, and never through a link, whatever its name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cluster.ssh.tar_stream import PIECE, Kind, Member, TarStream

MOST_DEEP = 100  # nested folders: programs that walk or remove them have limits, too
MOST_LINKS = 2_000
MOST_HOPS = 40  # from link to link, as in Linux itself
MOST_NAMED = 20  # left-out members that are listed by name
NOTHING = "it leads to nothing among the results"
# Errors that concern a single file: its name is invalid, or something of that name exists.
OF_ONE_FILE = {
    errno.EEXIST,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
}
Parts = tuple[str, ...]


@dataclass
class Unpacked:
    """The result of extracting an archive.

    Attributes:
        is_empty: there was no archive, not a single byte.
        left_out: the members that were not written, name -> reason; the first MOST_NAMED.
        left_out_count: the number of all members that were not written.
        lacks_files: whether files are among them, so that content is missing here.
    """

    is_empty: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    left_out_count: int = 0
    lacks_files: bool = False

    def leave_out(self, name: str, why: str, *, is_file: bool) -> None:
        """Record a member that is not written."""
        self.left_out_count += 1
        self.lacks_files |= is_file
        if len(self.left_out) < MOST_NAMED:
            self.left_out[name] = why


@dataclass(frozen=True)
class _Link:
    """A link's target, relative to the top of the results; `..` is not resolved yet."""

    target: Parts
    is_hard: bool


class _Refused(Exception):
    """This member is not written; the message says why."""


def unpack(pieces: Iterator[bytes], folder: Path, limit_bytes: int, there: str = "") -> Unpacked:
    """Extract an archive into an empty folder that nothing else uses.

    Args:
        pieces: an uncompressed archive, as `tar --format=gnu` writes it.
        folder: the folder to write into.
        limit_bytes: the most bytes to read and write.
        there: the folder's path on the node, to which absolute links may refer.

    Raises:
        BadArchive: it is damaged, or larger than the limit.
        OSError: it could not be written, for example because the disk is full.
    """
    stream, done = TarStream(pieces, limit_bytes), Unpacked()
    links: dict[Parts, _Link] = {}
    with _open_folder(folder) as root:
        for member in stream:
            try:
                _take(root, stream, member, links, there)
            except _Refused as refused:
                is_file = member.kind in (Kind.FILE, Kind.HARD_LINK)
                done.leave_out(member.name.removeprefix("./"), str(refused), is_file=is_file)
        for parts, link in links.items():
            try:
                _copy(root, stream, _resolve(parts, links), parts)
            except _Refused as refused:
                done.leave_out("/".join(parts), str(refused), is_file=link.is_hard)
    done.is_empty = stream.is_empty
    return done


def _take(
    root: int, stream: TarStream, member: Member, links: dict[Parts, _Link], there: str
) -> None:
    """Extract one member; a link is only recorded, because its target may come later."""
    parts = _parts(member.name)
    if member.kind is Kind.FOLDER:
        _make_folder(root, parts)
    elif not parts or member.kind is Kind.OTHER:
        raise _Refused("it is no plain file")
    elif member.kind is Kind.FILE:
        _write_file(root, stream, member, parts)
    elif len(links) == MOST_LINKS:
        raise _Refused(f"it is a link, of more than {MOST_LINKS}")
    else:
        links[parts] = _Link(_target(parts, member, there), member.kind is Kind.HARD_LINK)


def _make_folder(root: int, parts: Parts) -> None:
    """Create a folder in an existing one, unless it exists."""
    if parts:
        with _walk(root, parts[:-1]) as above, _refusing():
            try:
                os.mkdir(parts[-1], 0o755, dir_fd=above)
            except FileExistsError:
                with _open_folder(parts[-1], above):
                    pass  # opening raises if it is not a folder


def _write_file(root: int, stream: TarStream, member: Member, parts: Parts) -> None:
    _check_room(root, member.size)
    with _new_file(root, parts, executable=member.is_executable) as file:
        for piece in stream.content(member):
            _write_all(file, piece)
        _set_time(file, member.mtime)


def _copy(root: int, stream: TarStream, source: Parts, target: Parts) -> None:
    """Copy a link's target file to the link's path."""
    with _walk(root, source[:-1]) as folder, _refusing():
        old = os.open(source[-1], os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        about = os.fstat(old)
        if not stat.S_ISREG(about.st_mode):
            raise _Refused("it is a link to a folder")
        stream.spend(about.st_size)
        _check_room(root, about.st_size)
        with _new_file(root, target, executable=bool(about.st_mode & 0o100)) as new:
            while piece := os.read(old, PIECE):
                _write_all(new, memoryview(piece))
            _set_time(new, int(about.st_mtime))
    finally:
        os.close(old)


def _parts(name: str) -> Parts:
    """Return a member's path in the folder.

    Raises:
        _Refused: it leads out of the folder, or is nested too deeply.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts:
        raise _Refused("its name leads out of the results")
    if len(parts) > MOST_DEEP:
        raise _Refused(f"it lies in more than {MOST_DEEP} folders")
    return parts


def _target(parts: Parts, link: Member, there: str) -> Parts:
    """Return a link's target, relative to the top of the results.

    Raises:
        _Refused: it is absolute and outside of the results, or is nested too deeply.
    """
    target = PurePosixPath(link.target)
    if target.is_absolute():
        if not there or not target.is_relative_to(there):
            raise _Refused(NOTHING)
        found = target.relative_to(there).parts
    elif link.kind is Kind.HARD_LINK:
        found = target.parts
    else:
        found = (*parts[:-1], *target.parts)
    if len(found) > MOST_DEEP:
        raise _Refused(NOTHING)
    return found


def _resolve(parts: Parts, links: Mapping[Parts, _Link]) -> Parts:
    """Resolve a path through links, as the kernel would.

    Raises:
        _Refused: it leads out of the results, in a circle, or to their top.
    """
    ahead, behind = list(reversed(parts)), list[str]()
    hops = 0
    while ahead:
        part = ahead.pop()
        if part == ".." and not behind:
            raise _Refused(NOTHING)
        if part == "..":
            behind.pop()
        elif link := links.get((*behind, part)):
            hops += 1
            if hops > MOST_HOPS:
                raise _Refused(NOTHING)
            behind = []
            ahead += reversed(link.target)
        else:
            behind.append(part)
    if not behind:
        raise _Refused("it is a link to a folder")
    return tuple(behind)


@contextmanager
def _open_folder(path: str | Path, above: int | None = None) -> Iterator[int]:
    """Yield a file descriptor of a folder that is not a link."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _walk(root: int, parts: Parts) -> Iterator[int]:
    """Yield a file descriptor of the folder at a path, opened folder by folder."""
    here = os.dup(root)
    try:
        for part in parts:
            with _refusing():
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


@contextmanager
def _new_file(root: int, parts: Parts, *, executable: bool) -> Iterator[int]:
    """Yield a file descriptor of a new file; it must not exist."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with _walk(root, parts[:-1]) as folder, _refusing():
        file = os.open(parts[-1], flags, 0o755 if executable else 0o644, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors that concern a single file into _Refused, so that the other files are still written."""
    try:
        yield
    except FileNotFoundError:
        raise _Refused(NOTHING) from None
    except OSError as error:
        if error.errno in OF_ONE_FILE:
            raise _Refused(os.strerror(error.errno).lower()) from None
        raise


def _check_room(root: int, size: int) -> None:
    """Check for free disk space in advance, so that the disk is not filled up for everyone else.

    Raises:
        OSError: ENOSPC.
    """
    disk = os.fstatvfs(root)
    if size > disk.f_bavail * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write_all(file: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(file, piece) :]


def _set_time(file: int, mtime: int) -> None:
    try:
        os.utime(file, (mtime, mtime))
    except (OSError, OverflowError):
        pass  # a time that this file system cannot store
