"""Sending an image to hosts: concurrently, only to those without it, and nothing continues if one fails."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.base.errors import ClusterError
from cluster.hosts.hosts_file import Host
from cluster.hosts.ship_image import reason, ship_image

# Imitates `docker save IMAGE` and `docker --host FOLDER load`, as far as needed; a folder stands for a host.
DOCKER = """\
#!/bin/bash
case "$*" in
  save*) echo $$ >> "$STARTED"; cat "$IMAGE_FILE"
    [ -e "$IMAGE_FILE.broken" ] && { echo "no such layer" >&2; exit 1; } ;;
  *load) [ -e "$2/full" ] && { echo "no space left on device" >&2; exit 1; }
    touch "$2/begun"
    while [ -e "$2/wait" ] && ! [ -e "$(cat "$2/wait")/begun" ]; do sleep 0.02; done
    cat > "$2/image" ;;
esac
"""


@dataclass
class FakeEngine:
    """A folder with an image, or without; `old`: the id of its previous image."""

    folder: Path
    old: str | None = None
    host: Host = field(init=False)
    accepted: bool | None = None

    def __post_init__(self):
        self.folder.mkdir(exist_ok=True)
        self.host, self.start_it = Host(self.folder.name, self.folder.name), "docker info"

    def image_content(self, tag):
        image = self.folder / "image"
        return image.read_text() if image.exists() else None

    def image_id(self, tag):
        return self.old

    make_room = "docker system prune"

    def transfer_argv(self, local, image):
        return ["docker", "save", image], ["docker", "--host", str(self.folder), "load"]

    def accept_image(self, local, image):
        self.accepted = True

    def discard_image(self):
        self.accepted = False

    def forget_image(self, image_id):
        (self.folder / "removed").write_text(f"{image_id}\n")


@pytest.fixture
def local(tmp_path, monkeypatch):
    """This machine's engine, with a `docker` in PATH that knows it and the hosts."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    engine = FakeEngine(tmp_path / "local")
    (engine.folder / "image").write_text("layers" * 100_000)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IMAGE_FILE", str(engine.folder / "image"))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return engine


@pytest.fixture
def hosts(tmp_path):
    return [FakeEngine(tmp_path / "west", old="sha256:old"), FakeEngine(tmp_path / "east")]


def test_it_goes_to_those_that_lack_it_at_once(local, hosts, tmp_path):
    west, east = hosts
    has_it = FakeEngine(tmp_path / "north")
    (has_it.folder / "image").write_text(local.image_content(""))
    for host, other in ((west, east), (east, west)):  # each continues once the other has begun
        (host.folder / "wait").write_text(str(other.folder))
    said = []
    assert ship_image(local, [west, has_it, east], "node", said.append)
    assert west.image_content("") == east.image_content("") == local.image_content("")
    assert said == ["sending node to hosts west, east"]
    assert (west.accepted, has_it.accepted, east.accepted) == (True, None, True)
    assert (west.folder / "removed").read_text() == "sha256:old\n"
    assert not (east.folder / "removed").exists()
    assert not ship_image(local, hosts, "node", said.append) and len(said) == 1


def test_one_that_has_no_room_is_named_and_the_others_end(local, hosts):
    west, east = hosts
    (west.folder / "full").touch()
    (east.folder / "wait").write_text("/nowhere")
    with pytest.raises(ClusterError) as refused:
        ship_image(local, hosts, "node", lambda line: None)
    assert "node could not be sent to host west: no space left" in refused.value.message
    assert west.accepted is False
    assert "on host west: docker system prune" in refused.value.hint
    assert east.image_content("") is None
    for started in Path(os.environ["STARTED"]).read_text().split():
        assert not Path(f"/proc/{started}").exists()


def test_a_full_disk_is_one_line_however_many_files_found_it_full():
    said = "".join(f"tar: lib/{n}: Cannot write: No space left on device\n" for n in range(1000))
    assert reason(said) == "tar: lib/0: Cannot write: No space left on device"
    assert reason("a\nb\nc\n") == "b; c" and reason("") == ""


def test_what_could_not_be_read_here_is_named(local, hosts):
    (local.folder / "image.broken").touch()
    with pytest.raises(ClusterError, match="could not be sent to host west: no such layer"):
        ship_image(local, hosts, "node", lambda line: None)


def test_a_host_that_ends_up_with_another_one_is_named(local, hosts):
    hosts[1].image_content = lambda tag: "another"
    with pytest.raises(ClusterError, match="to host east: the host loaded a different image"):
        ship_image(local, hosts, "node", lambda line: None)


def test_no_host_waits_for_ever(local, hosts, monkeypatch):
    monkeypatch.setattr("cluster.hosts.ship_image.SHIP_TIMEOUT_S", 0.3)
    (hosts[0].folder / "wait").write_text("/nowhere")
    started = time.monotonic()
    with pytest.raises(ClusterError, match="to host west: not done in 0 s"):
        ship_image(local, hosts, "node", lambda line: None)
    assert time.monotonic() - started < 30
