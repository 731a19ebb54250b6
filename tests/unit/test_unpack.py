"""Whatever a node sends is unpacked into its folder and nowhere else, on every Python that a host may have."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pythons import pythons
from tars import archive, compressed, member
from unpack_worker import unpack_here, unpack_in

MB = 10**6
VICTIM = "as it was"


@pytest.fixture(params=pythons())
def unpack(request, tmp_path):
    """A function that unpacks an archive; afterwards nothing outside the folder may have changed."""
    folder = tmp_path / "around" / "node2"
    folder.mkdir(parents=True)
    (tmp_path / "victim").write_text(VICTIM)

    def call(data, limit_bytes=100 * MB, piece_bytes=1000, apart=request.param != sys.executable):
        words = folder, limit_bytes, piece_bytes
        return (
            unpack_in(request.param, data, *words)
            if apart
            else unpack_here(io.BytesIO(data), *words)
        )

    yield call
    assert (tmp_path / "victim").read_text() == VICTIM
    assert {path.name for path in tmp_path.iterdir()} == {"around", "victim"}
    assert [path.name for path in (tmp_path / "around").iterdir()] == ["node2"]
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "around" / "node2"


def texts(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_what_gnu_tar_writes_arrives_as_it_was(unpack, folder, tmp_path_factory):
    """Long names, names that are not UTF-8, nested folders, hard links, sparse files, times, executable bits."""
    source = tmp_path_factory.mktemp("source")
    deep = source / "a" / ("b" * 200) / ("ü" * 100)
    deep.mkdir(parents=True)
    (deep / ("c" * 250)).write_text("deep")
    (source / "empty").mkdir()
    (source / "nothing").touch()
    (source / "run.sh").write_text("#!")
    (source / "run.sh").chmod(0o4755)
    os.link(source / "run.sh", source / "same")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_text("no UTF-8")
    with (source / "sparse").open("wb") as file:
        file.truncate(MB)
    os.utime(source / "nothing", (1e9, 1e9))
    os.utime(source / "sparse", (-1e6, -1e6))  # before 1970
    tar = ["tar", "--format=gnu", "-C", str(source), "-c", "."]
    data = subprocess.run(tar, capture_output=True, check=True).stdout
    for piece_bytes in (700, 1 << 20):
        shutil.rmtree(folder)
        folder.mkdir()
        done = unpack(data, piece_bytes=piece_bytes)
        assert (done["left_out"], done["lacks_files"]) == ({}, False)
        compared = ["diff", "-r", "--no-dereference", str(source), str(folder)]
        assert subprocess.run(compared, capture_output=True).returncode == 0
        assert (folder / "nothing").stat().st_mtime == 1e9
        assert (folder / "run.sh").stat().st_mode & 0o7777 == 0o755  # no setuid


def test_a_link_arrives_as_the_file_that_it_leads_to(unpack, folder):
    done = unpack(
        archive(
            member("./", kind="folder"),
            member("./model.pt", kind="link", to="ckpt/last.pt"),  # before its target
            member("./absolute.pt", kind="link", to="/run/here/ckpt/step-7.pt"),
            member("./ckpt/", kind="folder"),
            member("./ckpt/last.pt", kind="link", to="../ckpt/./step-7.pt"),
            member("./ckpt/step-7.pt", b"seven", mtime=1000),
            member("./through", kind="link", to="now/step-7.pt"),
            member("./now", kind="link", to="ckpt"),
        )
    )
    names = ("model.pt", "absolute.pt", "ckpt/last.pt", "ckpt/step-7.pt", "through")
    assert texts(folder) == dict.fromkeys(names, "seven")
    assert done["left_out"] == {"now": "it is a link to a folder"}
    assert not done["lacks_files"]


@pytest.mark.parametrize(
    "to", ["../victim", "../../victim", "/etc/passwd", "gone", "self", "a", ".", "..", "x/" * 200]
)
def test_a_link_that_leads_out_or_nowhere_is_left_out_and_nothing_else(unpack, folder, to):
    kept = member("kept", b"kept")
    links = (member("self", kind="link", to=to), member("a", kind="link", to="self"))
    done = unpack(archive(*links, kept))
    assert texts(folder) == {"kept": "kept"}
    assert set(done["left_out"]) == {"self", "a"}
    assert not done["lacks_files"]


# The path that escaped Python's own filter until 3.11.13 (CVE-2025-4517): it is too long to be resolved.
LONG, STEPS = "d" * 247, "abcdefghijklmnop"
FAR = "/".join(STEPS) + "/" + "l" * 254
TOO_LONG_TO_RESOLVE = [
    *(
        part
        for n, step in enumerate(STEPS)
        for part in (
            member("/".join([LONG] * (n + 1)), kind="folder"),
            member("/".join([*[LONG] * n, step]), kind="link", to=LONG),
        )
    ),
    member(FAR, kind="link", to="../" * len(STEPS)),
    member("escape", kind="link", to=f"{FAR}/../../victim"),
    member("same", kind="hard", to="escape"),
    member("same", b"bad"),
]


@pytest.mark.parametrize(
    "members",
    [
        [member("../../victim", b"bad")],
        [member("a/../../../victim", b"bad")],
        [member("/etc/gradwire-victim", b"bad")],
        [member("..", kind="folder"), member("../x", kind="folder")],
        [member("out", kind="link", to="../.."), member("out/victim", b"bad")],
        [member("out", kind="link", to="../../victim"), member("out", b"bad")],
        [member("same", kind="hard", to="../../victim"), member("same", b"bad")],
        [member("same", kind="hard", to="/etc/passwd")],
        [member("hop", kind="link", to="x/x"), member("hop", kind="link", to=".")],
        TOO_LONG_TO_RESOLVE,
        [member("dev", kind="device", devmajor=1, devminor=8), member("pipe", kind="pipe")],
        [member("victim\0/../x", b"bad")],
        [member("/".join("a" * 150), kind="folder")],
        [member("n" * 256, b"bad")],
    ],
    ids=lambda members: f"{len(members)} members",
)
def test_nothing_is_written_outside(unpack, folder, members):
    """The fixture checks the outside; here, what came before and after the hostile members is unpacked."""
    done = unpack(archive(member("before", b"before"), *members, member("after", b"after")))
    found = texts(folder)
    assert (found["before"], found["after"]) == ("before", "after")
    assert not any("passwd" in text or "root:" in text for text in found.values())
    assert set(found.values()) <= {"before", "after", "bad"}
    assert "error" not in done


def test_a_name_that_is_there_twice_keeps_its_first_content(unpack, folder):
    twice = [member("x", b"1"), member("x", b"2"), member("x", kind="folder"), member("x/y", b"3")]
    done = unpack(archive(*twice, member("z", b"z")))
    assert texts(folder) == {"x": "1", "z": "z"}
    assert done["lacks_files"]  # so the originals stay on the node


GOOD = archive(member("x", b"x" * 2000))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"garbage" * 1000, "no tar archive"),
        (compressed(b"x", "bz2"), "ends in the middle"),  # shorter than a header
        (compressed(bytes(20 * MB), "gz"), "no tar archive"),
        (compressed(bytes(20 * MB), "xz"), "no tar archive"),
        (GOOD[:300], "ends in the middle"),
        (GOOD[:1000], "ends in the middle"),
        (GOOD[:2560], "ends in the middle"),
        (GOOD[:100] + b"9" + GOOD[101:], "no tar archive"),
        (GOOD + bytes(2 * MB), "goes on after its end"),
        (member("x", type=b"L", size=5000), "a name in the archive has 5000 bytes"),
        (member("x", size=-1), "no tar archive"),
        (member("x", size=2**70), "more than the limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_a_damaged_archive_is_refused_in_words(unpack, data, words):
    done = unpack(data)
    assert done["kind"] == "BadArchive"
    assert words in done["error"]


def test_no_archive_at_all_is_told(unpack):
    assert unpack(b"")["is_empty"]
    assert not unpack(archive())["is_empty"]


def test_a_file_larger_than_the_limit_is_refused_by_what_it_says(unpack, folder):
    """A sparse file of 1 TB, which takes no space on the node, is refused before it is read."""
    done = unpack(archive(member("./small", b"x"))[:1024] + member("./sparse", size=10**12))
    assert "with ./sparse of 1e+06 MB they are more than the limit of 100 MB" in done["error"]
    assert not (folder / "sparse").exists()


@pytest.mark.parametrize(
    "members",
    [
        [member(f"{n}", b"x" * 60_000) for n in range(20)],
        [member(f"{n}") for n in range(300)],  # each takes a block on the disk
        [member(f"{n}", kind="folder") for n in range(300)],
        [member(f"{n}", kind="pipe") for n in range(300)],
        [member("x", b"x" * 60_000), *(member(f"{n}", kind="link", to="x") for n in range(20))],
    ],
    ids=["files", "empty files", "folders", "pipes", "copies"],
)
def test_the_limit_is_of_all_together(unpack, folder, members):
    assert "more than the limit of 1 MB" in unpack(archive(*members), limit_bytes=MB)["error"]
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MB


def test_a_file_that_finds_no_room_on_the_disk_is_refused_before_it_fills_it(unpack, folder):
    free = shutil.disk_usage(folder).free
    done = unpack(member("x", size=free + 10**9) + bytes(MB), limit_bytes=10**15)
    assert done["kind"] == "OSError" and "No space left" in done["error"]
    assert not (folder / "x").exists()


def test_of_much_that_is_left_out_little_is_kept_in_memory(unpack):
    done = unpack(archive(*(member(f"{n}", kind="pipe") for n in range(3000))))
    assert (len(done["left_out"]), done["left_out_count"]) == (20, 3000)
    links = (member(f"{n}", kind="link", to="x" * 4000) for n in range(3000))
    done = unpack(archive(*links))
    assert done["left_out_count"] == 3000


def test_large_files_take_little_memory(unpack, folder):
    small = unpack(archive(member("./x", b"x")), apart=True)["peak_bytes"]
    (folder / "x").unlink()
    data = archive(member("./x", bytes(99 * MB)))
    large = unpack(data, piece_bytes=1 << 16, apart=True)["peak_bytes"]
    assert (folder / "x").stat().st_size == 99 * MB
    assert large - small < 10 * MB
