"""Makes what the guest is started with: two disks, and a folder that it shares with the host.

The node image determines the design: `docker load` of its 1.9 GB inside the guest takes minutes. So the guest loads
a stand-in with the same configuration and one empty layer (`write_stand_in`), and mounts a disk with the files of
the image, and pytest, in the place where Docker keeps that layer: Docker reads it like any other.

Nothing here needs root: mke2fs makes the disks from tar archives, in a container.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uml

from cluster.base.spec import IMAGE

GUEST_IMAGE = "gradwire-netem-guest"
NODE_TEST_IMAGE = (
    f"{IMAGE}-test"  # the node image with pytest: it contains all files of the node image
)
HERE = Path(__file__).resolve().parent
PROJECT_DIR = HERE.parents[1]
ROOM_BYTES = (
    1 << 30
)  # free space of the guest's root disk; files are sparse, so unused space costs nothing


def copy_checkout(to: Path) -> None:
    """Copy this checkout as git would commit it now, with its permissions."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=PROJECT_DIR, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = PROJECT_DIR / name, to / name
        if source.is_file():  # git also lists files that have just been removed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def build_images(base: str) -> None:
    """Build the guest's images: half a minute the first time, then Docker's cache has them."""
    for target, tag in (("kernel", uml.IMAGE), ("system", GUEST_IMAGE)):
        words = ("--target", target, "--build-arg", f"BASE_IMAGE={base}")
        _build(tag, HERE, *words, "--file", str(HERE / "guest.Dockerfile"))
    _build(NODE_TEST_IMAGE, PROJECT_DIR / "tests" / "node", "--build-arg", f"IMAGE={IMAGE}")


def _build(tag: str, folder: Path, *words: str) -> None:
    argv = ["docker", "build", "--quiet", "--tag", tag, *words, str(folder)]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)


def make_disks(folder: Path) -> tuple[Path, Path]:
    """Make the guest's root disk and the disk with the node image's files."""
    root, node = folder / "root.ext4", folder / "node.ext4"
    with ThreadPoolExecutor() as pool:
        list(pool.map(make_disk, (GUEST_IMAGE, NODE_TEST_IMAGE), (root, node)))
    return root, node


def make_disk(image: str, disk: Path) -> None:
    """Make an ext4 file system with all files of an image; without a journal, because it is booted only once."""
    size_kib = int(inspect(image)["Size"] * 1.3 + ROOM_BYTES) // 1024
    disk.unlink(missing_ok=True)
    disk.touch()  # so that we own it, not the container's root
    options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", "-"]
    mount = f"type=bind,source={disk},target=/disk"
    create = subprocess.run(
        ["docker", "create", image, "true"], capture_output=True, check=True, text=True
    )
    container = create.stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
            subprocess.run(
                # Without a UTF-8 locale libarchive refuses names such as those of CA certificates.
                ["docker", "run", "--rm", "--interactive", "--network", "none"]
                + ["--env", "LC_ALL=C.UTF-8", "--mount", mount, uml.IMAGE]
                + ["mke2fs", *options, "/disk", f"{size_kib}k"],
                stdin=export.stdout,
                check=True,
            )
    finally:
        subprocess.run(["docker", "rm", container], stdout=subprocess.DEVNULL, check=True)


def write_stand_in(path: Path) -> None:
    """Write the node image as `docker save` would, with its configuration but without files."""
    image = inspect(IMAGE)
    layer = _tar({})
    config = {
        "architecture": image["Architecture"],
        "os": image["Os"],
        "config": image["Config"],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [f"{IMAGE}:latest"], "Layers": ["layer.tar"]}]
    parts = {"config.json": _json(config), "manifest.json": _json(manifest), "layer.tar": layer}
    path.write_bytes(_tar(parts))


def inspect(image: str) -> dict[str, Any]:
    """Return what the engine knows of an image."""
    argv = ["docker", "image", "inspect", image]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    images: list[dict[str, Any]] = json.loads(done.stdout)
    return images[0]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _tar(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()
