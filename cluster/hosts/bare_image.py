"""How the node image comes to a host without an engine: as a folder, from which the program node.bare runs, too."""

from __future__ import annotations

import hashlib
import json
import uuid

from cluster.base.errors import ClusterError
from cluster.engine.client import Engine
from protocol.bare import (
    CURRENT_IMAGE,
    HOST_FOLDER,
    IMAGE_FILE,
    IMAGES_FOLDER,
    RUNTIME_FOLDER,
    Image,
)
from protocol.reader import document

ENTER = f"{HOST_FOLDER}/enter"
"""On a host: the script that runs the program."""
NOTHING = 44
"""The exit code of ENTER_IF_THERE where no image ever came."""
ENTER_IF_THERE = f'test -x {ENTER} || exit {NOTHING}; exec {ENTER} "$@"'

# Runs the program in the image, as root and in the host's namespaces, but for mounts: nothing stays mounted here. The
# host's own root is not only hidden (chroot) but gone (pivot_root): what a node gets hangs below this one.
ENTER_SCRIPT = f"""\
#!/bin/sh
set -eu
mkdir -p {RUNTIME_FOLDER}
exec unshare --mount --propagation private sh -c '
root=$(readlink -f {CURRENT_IMAGE})
mount --bind "$root" "$root"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
for folder in {HOST_FOLDER} {RUNTIME_FOLDER}; do mount --bind "$folder" "$root$folder"; done
cd "$root"
pivot_root . mnt
cd /
umount --lazy /mnt
exec env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/gradwire \
  PYTHONDONTWRITEBYTECODE=1 python3 -m node.bare "$@"' sh "$@"
"""

# Argument: the name of a new folder. Standard input: the image's files as a tar archive. What is cut off, because the
# sender was killed or the disk is full, is removed here: nobody else may be left to do it.
RECEIVE = f"""\
set -eu
umask 077
mkdir -p {IMAGES_FOLDER}
mkdir -m 755 "{IMAGES_FOLDER}/$1"
tar -x -C "{IMAGES_FOLDER}/$1" -f - || {{ rm -rf "{IMAGES_FOLDER}/$1"; exit 1; }}
"""
# Arguments: that folder, the image's id, its IMAGE_FILE, ENTER_SCRIPT. An image that is there already is kept, because
# nodes may run from it.
ACCEPT = f"""\
set -eu
umask 077
new={IMAGES_FOLDER}/$1
image={IMAGES_FOLDER}/$2
if [ -e "$image/{IMAGE_FILE}" ]; then
  rm -rf "$new"
else
  mkdir -p "$new/proc" "$new/sys" "$new/dev" "$new{HOST_FOLDER}" "$new{RUNTIME_FOLDER}"
  printf %s "$3" > "$new/{IMAGE_FILE}"
  rm -rf "$image"
  mv "$new" "$image"
fi
printf %s "$4" > {ENTER}.new
chmod 700 {ENTER}.new
mv {ENTER}.new {ENTER}
ln -sfn "$image" {CURRENT_IMAGE}
"""
DISCARD = f'rm -rf "{IMAGES_FOLDER}/$1"'
"""Argument: that folder. Removes what was not received wholly."""


def new_folder() -> str:
    """Return a name for the folder of an image that is being sent; `prune` leaves those of others alone."""
    return f".new-{uuid.uuid4().hex}"


def send_argv(image: str) -> list[str]:
    """Return the command that writes the files of a local image to standard output, as a tar archive."""
    words = ["docker", "run", "--rm", "--network", "none", "--log-driver", "none", "--user", "0"]
    words += ["--entrypoint", "tar", image]
    return [*words, "--one-file-system", "--create", "--file", "-", "--directory", "/", "."]


def accept_argv(folder: str, image: Image) -> list[str]:
    """Return the command that, on a host, makes what it has received its current image."""
    return ["sh", "-c", ACCEPT, "sh", folder, image.id, json.dumps(document(image)), ENTER_SCRIPT]


def describe(local: Engine, image: str) -> Image:
    """Return what a host keeps about an image of this machine's engine.

    Raises:
        ClusterError: the engine does not have it.
    """
    found = local.inspect_image(image)
    if found is None:
        raise ClusterError(f"no image {image}", "python -m cluster.image")
    config = found["Config"]
    return Image(
        id=_folder(found["Id"], image),
        tag=image,
        layers=found["RootFS"].get("Layers") or [],
        labels=config.get("Labels") or {},
        environment=config.get("Env") or [],
    )


def _folder(image_id: str, tag: str) -> str:
    """Return the name of an image's folder: two tags of one image are two folders, as each is found by its tag."""
    return f"{image_id.removeprefix('sha256:')[:24]}-{hashlib.sha256(tag.encode()).hexdigest()[:8]}"
