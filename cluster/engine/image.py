"""Builds the node image from our own files, and detects when it is out of date.

The image carries the hash of the files that it was built from. `up` and `launch` compare it with the current files, so
a change of node/ or protocol/ rebuilds it (seconds: they are the last layers). The base image is pulled; if no registry
answers, the same Debian is bootstrapped from its packages with mmdebstrap and imported under the same tag.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from cluster.base.errors import ClusterError, PrerequisiteError, UsageError
from cluster.base.paths import CODE_DIR, IMAGE_DIR
from cluster.base.processes import run_bounded
from cluster.base.spec import IMAGE
from cluster.engine.build_progress import BuildProgress, is_progress
from cluster.engine.client import LABEL_SOURCE, Engine
from cluster.engine.wheels import ensure_wheels

BASE_IMAGE = "debian:trixie-slim"
BASE_SUITE = "trixie"
PULL_TIMEOUT_S = 300
IMPORT_TIMEOUT_S = 1200  # mmdebstrap fetches and unpacks some 100 MB in it
MOST_SILENT_S = 1200  # of a build: its last step writes layers of 7 GB and prints nothing
# The options that make Debian's own image of that tag slim and fast to build on, for mmdebstrap and every later
# apt-get: no manuals and translations, and no fsync after each file.
BASE_DPKG_OPTIONS = (
    "force-unsafe-io",
    *(f"path-exclude=/usr/share/{name}/*" for name in ("doc", "groff", "info", "locale", "man")),
    "path-include=/usr/share/doc/*/copyright",
)
NEEDED_DISK_BYTES = 5 * 10**9  # 1.3 GB of image, and as much again during its largest layer
NEEDED_WITH_PYPI_BYTES = 16 * 10**9  # 7.5 GB of image, likewise
REQUIREMENTS = "requirements-image.txt"
EXTRAS = {"MUJOCO": "requirements-mujoco.txt"}
"""Optional packages of the image: each build argument, and the requirements file that it installs."""
SOURCES = {
    "Dockerfile": IMAGE_DIR,
    ".dockerignore": IMAGE_DIR,
    REQUIREMENTS: IMAGE_DIR,
    **dict.fromkeys(EXTRAS.values(), IMAGE_DIR),
    "node": CODE_DIR,
    "protocol": CODE_DIR,
}
"""The files and folders that the image is built from, and the folder of each; in a checkout it is one folder."""

TORCH_ARGS = ("TORCH", "TORCHVISION", "USE_LIBUV")

Progress = Callable[[str], None]
"""A callback that takes one line of progress."""


def source_hash(build_args: Mapping[str, str]) -> str:
    """Return one hash of everything that determines the image: its source files and the build arguments."""
    digest = hashlib.sha256(repr(sorted(build_args.items())).encode())
    for name, path in _source_files():
        digest.update(f"{name}\0{_is_executable(path):d}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def ensure_image(
    engine: Engine, report: Progress, build_args: Mapping[str, str] | None = None
) -> bool:
    """Build the node image unless it matches this checkout; return whether it was built.

    Without `build_args` those of the last build are kept, so that `up` never turns a CUDA image back into a CPU one.

    Raises:
        PrerequisiteError: no base image is available; ClusterError: the build failed or the disk is full.
    """
    built = engine.image_source(IMAGE)
    args = dict(build_args) if build_args is not None else _args_of(built)
    wanted = _label(args)
    if built == wanted:
        return False
    _check_disk(engine, NEEDED_WITH_PYPI_BYTES if "TORCH" in args else NEEDED_DISK_BYTES)
    if args.get("BASE_IMAGE", BASE_IMAGE) == BASE_IMAGE:
        ensure_base(engine, report)
    report(
        "building the node image: minutes to install its packages, seconds where only our code changed"
    )
    before = engine.image_id(IMAGE)
    wheels = _wheels(engine, args, report)
    with _build_context(wheels) as context:
        _stream(_build_argv(args, wanted), report, f"the image {IMAGE} could not be built", context)
    if before and before != engine.image_id(IMAGE):
        _forget(before)
    return True


def require_image(engine: Engine, image: str) -> None:
    """Check that a user's own image exists and is built on the current gradwire-node.

    Raises:
        PrerequisiteError: it does not exist, or is built on an older one.
    """
    if engine.image_id(image) is None:
        raise PrerequisiteError(
            f"no image {image}",
            f"docker build --tag {image} FOLDER, with FROM {IMAGE} in its Dockerfile",
        )
    if not is_current(engine, image):
        raise PrerequisiteError(f"image {image} is not built on today's {IMAGE}", "build it again")


def require_packages(engine: Engine, image: str, needed: Mapping[str, str]) -> None:
    """Check that the node image has the packages that a training needs.

    Does not check a user's own image: only its ranks can find out.

    Args:
        engine: has the image, or will build it with the arguments of the last build.
        image: the nodes' image.
        needed: Python packages, each with what needs it.

    Raises:
        UsageError: the image was built without one of them.
    """
    if image != IMAGE:
        return
    built_in = last_args(engine)
    for package, why in needed.items():
        if package.upper() not in built_in:
            raise UsageError(
                f"{why} needs {package}, which {IMAGE} is built without",
                f"python -m cluster.image --{package}",
            )


def is_current(engine: Engine, image: str = IMAGE) -> bool:
    """Return whether an image contains the code of this checkout; an image built FROM ours inherits our label."""
    built = engine.image_source(image)
    return built is not None and built == _label(_args_of(built))


def last_args(engine: Engine) -> dict[str, str]:
    """Return the build arguments of the existing node image."""
    return _args_of(engine.image_source(IMAGE))


def _wheels(engine: Engine, args: Collection[str], report: Progress) -> list[Path]:
    """Return the wheels that the build needs from PyPI."""
    files = [REQUIREMENTS, *(file for extra, file in EXTRAS.items() if extra in args)]
    architecture = engine.architecture()
    return [
        wheel for file in files for wheel in ensure_wheels(IMAGE_DIR / file, architecture, report)
    ]


def _label(args: Mapping[str, str]) -> str:
    """Return the image's source label: 'HASH KEY=VALUE KEY=VALUE'."""
    return f"{source_hash(args)} {_join(args)}".strip()


def _args_of(built: str | None) -> dict[str, str]:
    """Return the build arguments in an image's source label."""
    words = (built or "").split()[1:]
    return dict(word.split("=", 1) for word in words)


def _join(args: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(args.items()))


def _build_argv(args: Mapping[str, str], wanted: str) -> list[str]:
    all_args = {"BASE_IMAGE": BASE_IMAGE, **args}
    pairs = [word for key, value in all_args.items() for word in ("--build-arg", f"{key}={value}")]
    return [
        *("docker", "build", "--tag", IMAGE, "--label", f"{LABEL_SOURCE}={wanted}"),
        *(*pairs, "-"),
    ]


def _source_files() -> Iterator[tuple[Path, Path]]:
    """Yield each source file of the image: its path in the build context, and its path on disk."""
    for name, folder in SOURCES.items():
        top = folder / name
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        files = (p for p in paths if p.is_file() and "__pycache__" not in p.parts)
        yield from ((path.relative_to(folder), path) for path in files)


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


@contextmanager
def _build_context(wheels: Sequence[Path]) -> Iterator[IO[bytes]]:
    """Yield the source files and wheels as a tar archive that does not depend on the umask they were written under.

    Not a folder: an installed package lies beside those of others, and snap's Docker does not see /tmp.
    """
    with TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            files = [*_source_files(), *((Path("wheels", path.name), path) for path in wheels)]
            for name, path in files:
                member = tarfile.TarInfo(str(name))
                member.size = path.stat().st_size
                member.mode = 0o755 if _is_executable(path) else 0o644
                with path.open("rb") as content:
                    archive.addfile(member, content)
        file.seek(0)
        yield file


def _check_disk(engine: Engine, needed: int) -> None:
    free = engine.free_disk_bytes()
    if free is not None and free < needed:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free where Docker keeps its images; building needs "
            f"{needed / 1e9:.0f} GB",
            "docker system prune, or use a larger disk",
        )


def ensure_base(engine: Engine, report: Progress) -> None:
    """Pull the base image if it is missing, or bootstrap it if no registry provides it.

    Raises:
        PrerequisiteError, ClusterError: neither worked.
    """
    if engine.image_id(BASE_IMAGE) is not None:
        return
    report(f"pulling {BASE_IMAGE}")
    try:
        pull = subprocess.run(
            ["docker", "pull", "--quiet", BASE_IMAGE], capture_output=True, timeout=PULL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        pull = None
    if pull is None or pull.returncode != 0:
        report(f"no registry gave {BASE_IMAGE}: bootstrapping it from Debian's packages")
        _bootstrap_base(report)


def _bootstrap_base(report: Progress) -> None:
    """Pipe a root file system from mmdebstrap, as a tar stream, into `docker import`."""
    _ensure_mmdebstrap(report)
    bootstrap = subprocess.Popen(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--include=ca-certificates",
            *(f"--dpkgopt={option}" for option in BASE_DPKG_OPTIONS),
            BASE_SUITE,
            "-",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        load = subprocess.run(
            ["docker", "import", "-", BASE_IMAGE],
            stdin=bootstrap.stdout,
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        bootstrap.kill()
        bootstrap.wait()
        words = f"bootstrapping {BASE_IMAGE} took more than {IMPORT_TIMEOUT_S} s"
        raise ClusterError(words, "python -m cluster.image --base IMAGE") from None
    assert bootstrap.stdout is not None
    bootstrap.stdout.close()  # otherwise mmdebstrap would block forever after a failed import
    if load.returncode != 0:
        bootstrap.terminate()
    if bootstrap.wait() > 0:
        _forget(BASE_IMAGE)  # docker import also accepts a truncated file system
        raise ClusterError(
            f"mmdebstrap could not bootstrap {BASE_IMAGE}", see="its own words, above this line"
        )
    if load.returncode != 0:
        raise ClusterError(f"docker import {BASE_IMAGE}: {load.stderr.strip()}")


def _forget(image: str) -> None:
    """Remove an image unless it is still in use."""
    run_bounded(["docker", "image", "rm", image])


def _ensure_mmdebstrap(report: Progress) -> None:
    if shutil.which("mmdebstrap"):
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "mmdebstrap"]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise PrerequisiteError(
            f"no registry gives {BASE_IMAGE}, and mmdebstrap, which makes it, is not here",
            f"sudo {' '.join(install)}",
        )
    report("installing mmdebstrap")
    run_bounded(["apt-get", "update"])
    _stream(install, report, "mmdebstrap could not be installed")


def _stream(
    argv: list[str], report: Progress, failure: str, stdin: IO[bytes] | None = None
) -> None:
    """Run a long command and report its lines; if it fails or falls silent, raise a ClusterError with the last ones."""
    tail: list[str] = []
    progress = BuildProgress()
    is_silent = False

    def give_up() -> None:
        nonlocal is_silent
        is_silent = True
        process.terminate()

    with subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in _within(process.stdout, MOST_SILENT_S, give_up):
                report(progress.news(line.rstrip()))
                tail = tail if is_progress(line.rstrip()) else [*tail[-9:], line.rstrip()]
        except BaseException:
            process.terminate()
            raise
    if is_silent:
        tail.append(f"{argv[0]} has said nothing for {MOST_SILENT_S} s")
    if process.returncode != 0:
        raise ClusterError("\n".join([f"{failure}:", *tail]), _remedy("\n".join(tail).lower()))


def _within(
    lines: Iterable[str], most_silent_s: float, give_up: Callable[[], None]
) -> Iterator[str]:
    """Yield the lines; call `give_up`, from another thread, if none comes for `most_silent_s`."""
    ended = threading.Event()
    news = threading.Event()

    def watch() -> None:
        while news.wait(most_silent_s):
            news.clear()
            if ended.is_set():
                return
        give_up()

    threading.Thread(target=watch, daemon=True).start()
    try:
        for line in lines:
            news.set()
            yield line
    finally:
        ended.set()
        news.set()


def _remedy(said: str) -> str:
    if "no space left" in said:
        return "docker system prune, or use a larger disk"
    if "certificate_verify_failed" in said:
        return (
            "python -m cluster.image --base IMAGE, a Debian 13 image that has the certificates of your network in "
            "/etc/ssl/certs/ca-certificates.crt"
        )
    return ""


def requested_args(
    last: Mapping[str, str],
    torch: str | None,
    torchvision: str | None,
    base: str | None,
    *,
    mujoco: bool | None = None,
) -> dict[str, str]:
    """Return the requested build arguments; those that are not given stay as in the last build.

    Raises:
        UsageError: a word is neither a version nor an image, or one of the two versions is missing.
    """
    for word in (torch, torchvision, base):
        if word is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+:/@-]*", word):
            raise UsageError(f"{word!r} is neither a version nor an image")
    args = {key: value for key, value in last.items() if not torch or key not in TORCH_ARGS}
    args |= _torch_args(torch, torchvision)
    args |= {"BASE_IMAGE": base} if base else {}
    args |= {"MUJOCO": "1" if mujoco else ""} if mujoco is not None else {}
    default = {"BASE_IMAGE": BASE_IMAGE, "MUJOCO": ""}
    return {key: value for key, value in args.items() if default.get(key) != value}


def _torch_args(torch: str | None, torchvision: str | None) -> dict[str, str]:
    if torch == "debian" and torchvision is None:
        return {}
    if torch == "debian" or (torch is None) != (torchvision is None):
        raise UsageError(
            "--torch and --torchvision need one another", "--torch 2.9.1 --torchvision 0.24.1"
        )
    if torch is None or torchvision is None:
        return {}
    return {"TORCH": torch, "TORCHVISION": torchvision, "USE_LIBUV": "1"}
