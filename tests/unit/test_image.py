"""The image's build arguments: those requested, those kept, and those in its label."""

from types import SimpleNamespace

import pytest

from cluster.base.errors import ClusterError, UsageError
from cluster.engine import image
from cluster.engine.image import requested_args

PYPI = {"TORCH": "2.9.1", "TORCHVISION": "0.24.1", "USE_LIBUV": "1"}
OURS = {"BASE_IMAGE": "ours:13"}
MUJOCO = {"MUJOCO": "1"}


def test_torch_of_pypi_comes_with_its_torchvision_and_libuv():
    assert requested_args({}, "2.9.1", "0.24.1", None) == PYPI


def test_what_is_not_spoken_of_stays():
    assert requested_args(PYPI | OURS, None, None, None) == PYPI | OURS
    assert requested_args(OURS, "2.9.1", "0.24.1", None) == PYPI | OURS
    assert requested_args(PYPI, None, None, "ours:13") == PYPI | OURS


def test_the_way_back():
    assert requested_args(PYPI | OURS, "debian", None, None) == OURS
    assert requested_args(PYPI | OURS, None, None, image.BASE_IMAGE) == PYPI
    assert requested_args(PYPI | OURS, "debian", None, image.BASE_IMAGE) == {}


def test_mujoco_comes_and_goes_whatever_else_is_asked_for():
    assert requested_args(PYPI, None, None, None, mujoco=True) == PYPI | MUJOCO
    assert requested_args(MUJOCO | OURS, "2.9.1", "0.24.1", None) == PYPI | MUJOCO | OURS
    assert requested_args(PYPI | MUJOCO, "debian", None, None) == MUJOCO
    assert requested_args(PYPI | MUJOCO, None, None, None, mujoco=False) == PYPI


@pytest.mark.parametrize("args", [{}, MUJOCO])
def test_only_an_image_with_mujoco_is_sent_its_wheels(args, monkeypatch):
    monkeypatch.setattr(image, "ensure_wheels", lambda file, arch, report: [(file.name, arch)])
    found = image._wheels(SimpleNamespace(architecture=lambda: "aarch64"), args, print)
    extra = [("requirements-mujoco.txt", "aarch64")] if args else []
    assert found == [("requirements-image.txt", "aarch64"), *extra]


def test_what_the_image_was_built_without_is_refused_with_the_command_that_builds_it_in():
    def require(args, name=image.IMAGE):
        engine = SimpleNamespace(image_source=lambda tag: image._label(args))
        image.require_packages(engine, name, {"mujoco": "env=Hopper-v5"})

    with pytest.raises(UsageError) as refused:
        require(PYPI)
    assert refused.value.message == (
        "env=Hopper-v5 needs mujoco, which gradwire-node is built without"
    )
    assert refused.value.hint == "python -m cluster.image --mujoco"
    require(PYPI | MUJOCO)
    require({}, name="mine")  # it may contain the package anyway


@pytest.mark.parametrize(
    ("torch", "torchvision", "base"),
    [
        ("2.9.1", None, None),
        (None, "0.24.1", None),
        ("debian", "0.24.1", None),
        ("2.9.1 numpy", "0.24.1", None),
        ("2.9.1", "", None),
        (None, None, "a b"),
        (None, None, "--privileged"),
    ],
)
def test_what_cannot_be_is_refused(torch, torchvision, base):
    with pytest.raises(UsageError):
        requested_args({}, torch, torchvision, base)


@pytest.mark.parametrize("args", [{}, PYPI, OURS, PYPI | OURS | MUJOCO])
def test_the_label_remembers_the_arguments(args):
    assert image._args_of(image._label(args)) == args


def test_each_torch_has_a_hash_of_its_own():
    assert len({image.source_hash(args) for args in ({}, PYPI, OURS, MUJOCO)}) == 4


def test_another_line_of_the_nodes_code_is_another_image(monkeypatch, tmp_path):
    code = tmp_path / "node" / "wire.py"
    code.parent.mkdir()
    monkeypatch.setattr(image, "SOURCES", {"node": tmp_path})

    def source_hash(text):
        code.write_text(text)
        return image.source_hash({})

    assert (
        source_hash("LATE_S = 1e-3") == source_hash("LATE_S = 1e-3") != source_hash("LATE_S = 2e-3")
    )
    before = image.source_hash({})
    code.rename(code.with_name("wires.py"))
    assert image.source_hash({}) != before


def test_the_base_image_is_handed_on_once():
    argv = image._build_argv(PYPI | OURS, "label")
    assert [word for word in argv if word.startswith("BASE_IMAGE=")] == ["BASE_IMAGE=ours:13"]
    assert "BASE_IMAGE=debian:trixie-slim" in image._build_argv({}, "label")


@pytest.mark.parametrize(
    ("free_gb", "args", "fits"), [(6, {}, True), (6, PYPI, False), (4, {}, False)]
)
def test_torch_of_pypi_wants_more_disk(free_gb, args, fits, monkeypatch):
    engine = SimpleNamespace(
        image_source=lambda tag: None,
        image_id=lambda tag: "there",
        free_disk_bytes=lambda: free_gb * 10**9,
        architecture=lambda: "x86_64",
    )
    monkeypatch.setattr(image, "_stream", lambda argv, report, failure, stdin: None)
    monkeypatch.setattr(image, "_forget", lambda image_id: None)
    monkeypatch.setattr(image, "ensure_wheels", lambda file, architecture, report: [])
    if fits:
        assert image.ensure_image(engine, print, args)
    else:
        with pytest.raises(ClusterError, match="GB free"):
            image.ensure_image(engine, print, args)


def test_a_build_that_fails_says_its_last_words_without_the_progress():
    script = "echo 'dlstatus:1:2.0:Retrieving file 1 of 2'; echo '[SSL: CERTIFICATE_VERIFY_FAILED]'; exit 1"
    heard = []
    with pytest.raises(ClusterError) as caught:
        image._stream(["sh", "-c", script], heard.append, "it could not be built")
    assert heard[0] == "downloading packages: 2 %"
    assert "dlstatus" not in caught.value.message
    assert "--base IMAGE" in caught.value.hint


def test_a_build_that_says_nothing_any_more_is_ended(monkeypatch):
    monkeypatch.setattr(image, "MOST_SILENT_S", 2.0)
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.3; echo step $i; done; exec sleep 60"
    heard = []
    with pytest.raises(ClusterError, match="sh has said nothing for 2.0 s"):
        image._stream(["sh", "-c", script], heard.append, "it could not be built")
    assert heard == [f"step {n}" for n in range(1, 9)]  # in 2.4 s
