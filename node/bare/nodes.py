"""Makes, starts, lists and removes the nodes of this host."""

import base64
import json
import shutil
import time
from contextlib import suppress
from pathlib import Path

from node.bare import runtime
from node.bare.bundle import bundle, overlay_options, resources
from node.bare.device import give_device
from node.bare.folders import ENDS, NodeFolder, image_folder, shared_folder
from node.bare.runtime import HostError
from node.vxlan import host_lines
from node.wire.commands import run
from protocol.bare import (
    CURRENT_IMAGE,
    HOST_FOLDER,
    IMAGE_FILE,
    IMAGES_FOLDER,
    NODES_FOLDER,
    BareNode,
    Image,
    Limit,
    Listed,
)
from protocol.labels import LABEL_CLUSTER, WORKING_DIR
from protocol.places import KEYS_FOLDER
from protocol.reader import FormatError, document, parse

# Of an image: twice what its sender allows (cluster/hosts/ship_image.py).
LONGEST_TRANSFER_S = 7200.0
LOCALHOST = "127.0.0.1\tlocalhost\n"
SLOW_START = "net.ipv4.tcp_slow_start_after_idle"
STATES = {"created": "created", "running": "running", "paused": "paused"}  # all others: exited


def make(order: BareNode) -> None:
    """Make a node, in place of one of the same name; it is not started.

    Raises:
        HostError: one of the same name cannot be read, and stays; or the host cannot, and nothing of the node is left.
    """
    read_order(order.name)
    remove(order.name)
    folder = NodeFolder(order.name)
    image = read_image(order.image)
    try:
        for path in (folder.upper, folder.work, folder.root):
            path.mkdir(parents=True)
        _save(order._replace(keys={}), folder)
        _write_files(order, folder)
        shared = shared_folder(order.labels.get(LABEL_CLUSTER, order.name))
        shared.mkdir(parents=True, exist_ok=True)
        config = bundle(order, image, str(folder.root), str(shared))
        folder.config.write_text(json.dumps(config))
    except BaseException:
        remove(order.name)
        raise


def start(name: str) -> None:
    """Start a node that was made, or has ended; nothing happens if it runs.

    Raises:
        HostError: there is no such node, or the host cannot start it.
    """
    folder, order = NodeFolder(name), read_order(name)
    if order is None:
        raise HostError(f"{name}: there is no such node")
    if _is_up(name):
        return
    runtime.delete(name)
    lower, upper, work = image_folder(order.image), folder.upper, folder.work
    run(["mount", *overlay_options(str(lower), str(upper), str(work)), str(folder.root)])
    try:
        pid = runtime.create(folder, order.ssh_port)
        run(["umount", "--lazy", str(folder.root)])  # the node has it, and no other one gets it
        give_device(order.vxlan, pid, int(folder.conmon_pid_file.read_text()))
        runtime.start(folder)
    except BaseException:
        runtime.delete(name)
        raise


def remove(name: str) -> None:
    """End a node and remove all of it; nothing happens if there is none."""
    folder = NodeFolder(name)
    runtime.delete(name)
    shutil.rmtree(folder.path, ignore_errors=True)
    for path in (folder.end, folder.pid_file, folder.conmon_pid_file):
        path.unlink(missing_ok=True)


def remove_all(cluster: str, folder: str) -> list[str]:
    """End and remove a cluster's nodes that one checkout has made, and what they shared; return their names.

    Args:
        cluster: its name. Another checkout may have nodes of a cluster of the same name here: they stay.
        folder: of the checkout.

    Raises: like `read_order`.
    """
    found = [order for order in _orders() if order.labels.get(LABEL_CLUSTER) == cluster]
    names = [order.name for order in found if order.labels.get(WORKING_DIR) == folder]
    for name in names:
        remove(name)
    if len(names) == len(found):
        remove_shared(cluster)
    return names


def remove_shared(cluster: str) -> bool:
    """Remove what the nodes of a cluster on this host shared; return whether there was anything."""
    there = shared_folder(cluster).exists()
    shutil.rmtree(shared_folder(cluster), ignore_errors=True)
    return there


def prune() -> list[str]:
    """Remove the images that no node has, but the one that came last, and what came only in part.

    Returns:
        The names of their folders: the images' ids.

    Raises: like `read_order`.
    """
    kept = {order.image for order in _orders()}
    kept.add(Path(CURRENT_IMAGE).resolve().name)
    there = list(Path(IMAGES_FOLDER).glob("*"))
    gone = [path for path in there if path.name not in kept and not _is_coming(path)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in gone]


def _is_coming(image: Path) -> bool:
    """Return whether an image may still be on its way. By the time of its last change: tar sets that of its content."""
    if not image.name.startswith("."):
        return False
    with suppress(FileNotFoundError):
        return time.time() - image.stat().st_ctime < LONGEST_TRANSFER_S
    return True  # it has just come, and has its own name


def unpause(name: str) -> None:
    """Let a paused node go on; raises HostError."""
    runtime.unpause(name)


def limit(order: Limit) -> None:
    """Change the limits of a node, at once if it runs.

    Raises:
        HostError: there is no such node, or the kernel refuses.
    """
    node = read_order(order.name)
    if node is None:
        raise HostError(f"{order.name}: there is no such node")
    node = node._replace(
        cpu_period_us=order.cpu_period_us,
        cpu_quota_us=order.cpu_quota_us,
        memory_bytes=order.memory_bytes,
    )
    folder = NodeFolder(order.name)
    config = json.loads(folder.config.read_text())
    config["linux"]["resources"] = resources(node)
    if _is_up(order.name):
        runtime.update(order.name, _update(node))
    folder.config.write_text(json.dumps(config))
    _save(node, folder)


def list_nodes() -> list[Listed]:
    """Return the nodes of this host, running or not. Raises like `read_order`."""
    states = runtime.states()
    return [_listed(order, states.get(order.name, "")) for order in _orders()]


def list_images() -> list[Image]:
    """Return the images of this host, last the one that came last."""
    whole = [path for path in Path(IMAGES_FOLDER).glob("*") if (path / IMAGE_FILE).is_file()]
    whole.sort(key=lambda path: (path / IMAGE_FILE).stat().st_mtime)
    return [read_image(path.name) for path in whole]


def read_image(image: str) -> Image:
    """Return an image of this host.

    Raises:
        HostError: it is not there.
    """
    try:
        text = (image_folder(image) / IMAGE_FILE).read_text()
        return parse(Image, text, IMAGE_FILE, ignore_unknown=True)
    except (OSError, FormatError) as error:
        raise HostError(f"image {image} is not here: {error}") from error


def read_order(name: str) -> BareNode | None:
    """Return the order by which a node was made, without its keys; None if there is no such node.

    Raises:
        HostError: it cannot be read, perhaps because another version of gradwire wrote it. Such a node must not pass
            for none: it may run, and need its image.
    """
    try:
        text = NodeFolder(name).order.read_text()
        return parse(BareNode, text, "order", ignore_unknown=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        by_hand = f"""echo '{{"names": ["{name}"]}}' | {HOST_FOLDER}/enter remove"""
        raise HostError(
            f"{name}: it was made by another version of gradwire, or is damaged ({error}); "
            f"to remove it by hand there: {by_hand}"
        ) from error


def _orders() -> list[BareNode]:
    return [order for name in _names() if (order := read_order(name))]


def _save(order: BareNode, folder: NodeFolder) -> None:
    """Keep an order, whole or not at all: a node without one is found by nobody."""
    draft = folder.order.with_suffix(".new")
    draft.write_text(json.dumps(document(order)))
    draft.replace(folder.order)


def _is_up(name: str) -> bool:
    return runtime.states().get(name) in ("running", "paused")


def _names() -> list[str]:
    return sorted(path.name for path in Path(NODES_FOLDER).glob("*"))


def _listed(order: BareNode, said: str) -> Listed:
    folder = NodeFolder(order.name)
    started = folder.started.stat().st_mtime if folder.started.exists() else 0.0
    state = STATES.get(said, "exited" if started else "created")
    return Listed(
        name=order.name,
        image=order.image,
        labels=order.labels,
        state=state,
        exit_code=_exit_code(order.name),
        out_of_memory=folder.oom.exists(),
        started=started,
        slow_start=order.sysctls.get(SLOW_START) != "0",
        cpu_period_us=order.cpu_period_us,
        cpu_quota_us=order.cpu_quota_us,
        memory_bytes=order.memory_bytes,
    )


def _exit_code(name: str) -> int:
    try:
        return int((ENDS / name).read_text())
    except (OSError, ValueError):
        return 0


def _update(node: BareNode) -> dict[str, object]:
    """Return the limits as `runc update` takes them: it keeps what is left out, and -1 is none."""
    found = resources(node)
    none = {"cpu": {"period": 100_000, "quota": -1}, "memory": {"limit": -1, "swap": -1}}
    return {key: found.get(key, none[key]) for key in none}


def _write_files(order: BareNode, folder: NodeFolder) -> None:
    keys = folder.upper / KEYS_FOLDER.removeprefix("/")
    keys.parent.mkdir(mode=0o755)
    keys.mkdir(mode=0o700)
    for name, content in order.keys.items():
        path = keys / name
        path.write_bytes(base64.b64decode(content))
        path.chmod(0o600)
    (folder.upper / "etc").mkdir(mode=0o755)
    (folder.upper / "etc" / "hosts").write_text(LOCALHOST + host_lines(order.vxlan))
