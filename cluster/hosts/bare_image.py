"""How the node image comes to a host without an engine: as a folder, from which the program node.bare runs, too."""

from __future__ import annotations

import json

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

# Runs the program in the image, as root and in the host's namespaces, but for mounts: nothing stays mounted here, and
# the mounts of a node live as long as it does.
ENTER_SCRIPT = f"""\
#!/bin/sh
set -eu
mkdir -p {RUNTIME_FOLDER}
exec unshare --mount --propagation private sh -c '
root=$(readlink -f {CURRENT_IMAGE})
mount --bind "$root" "$root"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
for folder in {HOST_FOLDER} {RUNTIME_FOLDER}; do mount --bind "$folder" "$root$folder"; done
exec chroot "$root" env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/gradwire \\
  PYTHONDONTWRITEBYTECODE=1 python3 -m node.bare "$@"' sh "$@"
"""

# Arguments: the image's id, its IMAGE_FILE, ENTER_SCRIPT. Standard input: its files as a tar archive. What is broken
# off leaves only a folder whose name begins with a dot, which the next one removes.
RECEIVE = f"""\
set -eu
umask 077
new={IMAGES_FOLDER}/.new
mkdir -p {IMAGES_FOLDER}
rm -rf "$new"
mkdir -m 755 "$new"
tar -x -C "$new" -f -
mkdir -p "$new/proc" "$new/sys" "$new/dev" "$new{HOST_FOLDER}" "$new{RUNTIME_FOLDER}"
printf %s "$2" > "$new/{IMAGE_FILE}"
rm -rf "{IMAGES_FOLDER}/$1"
mv "$new" "{IMAGES_FOLDER}/$1"
printf %s "$3" > {ENTER}
chmod 700 {ENTER}
ln -sfn "{IMAGES_FOLDER}/$1" {CURRENT_IMAGE}
"""


def send_argv(image: str) -> list[str]:
    """Return the command that writes the files of a local image to standard output, as a tar archive."""
    words = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "tar", image]
    return [*words, "--one-file-system", "--create", "--file", "-", "--directory", "/", "."]


def receive_argv(local: Engine, image: str) -> list[str]:
    """Return the command that, on a host, takes these files from standard input and makes them its current image."""
    found = describe(local, image)
    return ["sh", "-c", RECEIVE, "sh", found.id, json.dumps(document(found)), ENTER_SCRIPT]


def describe(local: Engine, image: str) -> Image:
    """Return what a host keeps about an image of this machine's engine."""
    return Image(
        id=(local.image_id(image) or "").removeprefix("sha256:")[:32],
        tag=image,
        layers=local.image_layers(image),
        labels=local.image_labels(image),
        environment=local.image_environment(image),
    )
