"""Archives as a node may send them, made by hand, so that they may be ones that tar would not write."""

import io
import tarfile

KINDS = {
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
    "folder": tarfile.DIRTYPE,
}


def member(name, content=b"", kind=None, to="", **values):
    """Return one member; `values` are attributes of tarfile.TarInfo."""
    info = tarfile.TarInfo(name)
    info.size, info.linkname = len(content), to
    info.type = KINDS[kind] if kind else tarfile.REGTYPE
    for key, value in values.items():
        setattr(info, key, value)
    head = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return head + content + bytes(-len(content) % 512)


def archive(*members):
    return b"".join(members) + bytes(1024)


def compressed(data, kind):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as tar:
        info = tarfile.TarInfo("zeros")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
