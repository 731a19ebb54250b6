"""The node image: built from this checkout, noticed when it no longer is.

    python -m cluster.image              # build it if anything changed
    python -m cluster.image --torch 2.9.0 --torchvision 0.24.0     # PyPI's torch, for CUDA

The image carries the hash of the files it was built from. `up` and `launch` compare it with the checkout's,
so a changed node/ is rebuilt (seconds: it is the last layer) and never silently stale. The base image is
pulled; where no registry answers, the same Debian is bootstrapped from its packages with mmdebstrap and
imported under the same tag.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cluster.engine import LABEL_SOURCE, Engine
from cluster.errors import ClusterError, PrerequisiteError
from cluster.spec import IMAGE, PROJECT_DIR

BASE_IMAGE = "debian:trixie-slim"
BASE_SUITE = "trixie"
PULL_TIMEOUT_S = 300
# What makes Debian's own image of that tag slim and quick to build on, for mmdebstrap as for all apt-get after it: no
# manuals and translations, and no waiting for the disk after each file.
BASE_DPKG_OPTIONS = (
    "force-unsafe-io",
    *(f"path-exclude=/usr/share/{name}/*" for name in ("doc", "groff", "info", "locale", "man")),
    "path-include=/usr/share/doc/*/copyright",
)
NEEDED_DISK_BYTES = 6 * 10**9  # 1.9 GB of image, as much again while its largest layer is made
SOURCES = ("Dockerfile", ".dockerignore", "node")

Report = Callable[[str], None]
"""Takes one line of progress."""


def source_hash(build_args: Mapping[str, str]) -> str:
    """One hash of all that decides the image: the files that go into it, and the build arguments."""
    digest = hashlib.sha256(repr(sorted(build_args.items())).encode())
    for path in _source_files(PROJECT_DIR):
        digest.update(f"{path.relative_to(PROJECT_DIR)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def ensure_image(
    engine: Engine, report: Report, build_args: Mapping[str, str] | None = None
) -> bool:
    """Build the node image unless it is that of this checkout. Returns whether it was built.

    Without `build_args` those of the last build are kept: `up` never turns a CUDA image back into a CPU one.

    Raises:
        PrerequisiteError: no base image can be had; ClusterError: the build failed or the disk is full.
    """
    built = engine.image_source(IMAGE)
    args = dict(build_args) if build_args is not None else _args_of(built)
    wanted = _label(args)
    if built == wanted:
        return False
    _check_disk(engine)
    ensure_base(engine, report)
    report("building the node image (a minute and a half the first time, seconds after that)")
    before = engine.image_id(IMAGE)
    _stream(_build_argv(args, wanted), report, f"the image {IMAGE} could not be built")
    if before and before != engine.image_id(IMAGE):
        _forget(before)
    return True


def require_image(engine: Engine, image: str) -> None:
    """A user's own image must be there, and be built on today's gradwire-node.

    Raises:
        PrerequisiteError: it is not.
    """
    if engine.image_id(image) is None:
        raise PrerequisiteError(
            f"no image {image}", f"docker build --tag {image} FOLDER, FROM {IMAGE}"
        )
    if not is_current(engine, image):
        raise PrerequisiteError(f"image {image} is not built on today's {IMAGE}", "build it again")


def is_current(engine: Engine, image: str = IMAGE) -> bool:
    """Whether an image has in it the node/ of this checkout; one built FROM ours inherits our label."""
    built = engine.image_source(image)
    return built is not None and built == _label(_args_of(built))


def _label(args: Mapping[str, str]) -> str:
    """What the image is labelled with: 'HASH KEY=VALUE KEY=VALUE'."""
    return f"{source_hash(args)} {_join(args)}".strip()


def _args_of(built: str | None) -> dict[str, str]:
    """The build arguments that an image's label remembers."""
    words = (built or "").split()[1:]
    return dict(word.split("=", 1) for word in words)


def _join(args: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(args.items()))


def _build_argv(args: Mapping[str, str], wanted: str) -> list[str]:
    pairs = [word for key, value in args.items() for word in ("--build-arg", f"{key}={value}")]
    return [
        *("docker", "build", "--tag", IMAGE, "--label", f"{LABEL_SOURCE}={wanted}"),
        *("--build-arg", f"BASE_IMAGE={BASE_IMAGE}", *pairs),
        str(PROJECT_DIR),
    ]


def _source_files(root: Path) -> Iterator[Path]:
    for name in SOURCES:
        top = root / name
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        yield from (p for p in paths if p.is_file() and "__pycache__" not in p.parts)


def _check_disk(engine: Engine) -> None:
    free = engine.free_disk_bytes()
    if free is not None and free < NEEDED_DISK_BYTES:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free where Docker keeps its images; building needs "
            f"{NEEDED_DISK_BYTES / 1e9:.0f} GB",
            "docker system prune, or a larger disk",
        )


def ensure_base(engine: Engine, report: Report) -> None:
    """Have the base image: pulled, or bootstrapped where no registry gives it.

    Raises:
        PrerequisiteError, ClusterError: it can be had in neither way.
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


def _bootstrap_base(report: Report) -> None:
    """Mmdebstrap makes a root file system as a tar stream; Docker imports it as an image."""
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
    load = subprocess.run(
        ["docker", "import", "-", BASE_IMAGE],
        stdin=bootstrap.stdout,
        capture_output=True,
        text=True,
    )
    assert bootstrap.stdout is not None
    bootstrap.stdout.close()  # or it would write for ever where the import has failed
    if load.returncode != 0:
        bootstrap.terminate()
    if bootstrap.wait() > 0:
        _forget(BASE_IMAGE)  # half a file system imports as happily as a whole one
        raise ClusterError(
            f"mmdebstrap could not bootstrap {BASE_IMAGE}", "its own words are above this line"
        )
    if load.returncode != 0:
        raise ClusterError(f"docker import {BASE_IMAGE}: {load.stderr.strip()}")


def _forget(image: str) -> None:
    """Remove an image; one that is still in use stays."""
    subprocess.run(["docker", "image", "rm", image], capture_output=True)


def _ensure_mmdebstrap(report: Report) -> None:
    if shutil.which("mmdebstrap"):
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "mmdebstrap"]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise PrerequisiteError(
            f"no registry gives {BASE_IMAGE}, and mmdebstrap, which makes it, is not here",
            f"sudo {' '.join(install)}",
        )
    report("installing mmdebstrap")
    subprocess.run(["apt-get", "update"], capture_output=True)
    _stream(install, report, "mmdebstrap could not be installed")


def _stream(argv: list[str], report: Report, failure: str) -> None:
    """Run a long command, handing on each line; on failure its last lines are the message."""
    tail: list[str] = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                report(line.rstrip())
                tail = [*tail[-9:], line.rstrip()]
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        full = any("no space left" in line.lower() for line in tail)
        hint = "docker system prune, or a larger disk" if full else "the last lines are above"
        raise ClusterError("\n".join([f"{failure}:", *tail]), hint)


def main(argv: list[str] | None = None) -> int:
    """Build the node image."""
    from cluster.cli import make_parser, run_verb

    parser = make_parser("cluster.image", __doc__)
    parser.add_argument(
        "--torch", metavar="VERSION", help="from PyPI; 'debian' goes back to Debian's 2.6"
    )
    parser.add_argument("--torchvision", metavar="VERSION", help="the one that fits --torch")
    return run_verb(parser, build_image, argv)


def build_image(args: Namespace) -> dict[str, object]:
    """The verb: builds if it must, says which it was."""
    from cluster.console import Console

    console = Console()
    with console.progress("image") as report:
        built = ensure_image(Engine(), report, _requested_args(args))
    console.say(f"{IMAGE}: {'built' if built else 'already that of this checkout'}")
    return {"image": IMAGE, "built": built}


def _requested_args(args: Namespace) -> dict[str, str] | None:
    if args.torch is None and args.torchvision is None:
        return None
    if args.torch == "debian":
        return {}
    if args.torch is None or args.torchvision is None:
        raise PrerequisiteError(
            "--torch and --torchvision need one another", "torch 2.9.0 goes with torchvision 0.24.0"
        )
    return {"TORCH": args.torch, "TORCHVISION": args.torchvision}


if __name__ == "__main__":
    sys.exit(main())
