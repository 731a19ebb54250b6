"""The origin of its links that a node reports is validated, because the node is not trusted."""

import copy

import pytest

from cluster.base.errors import ClusterError
from cluster.links.link_spec import LinkSpec, make_link_spec

ORIGIN = make_link_spec("mobile", "ring", 3, "auto").origin()


def changed(**values):
    origin = copy.deepcopy(ORIGIN)
    for key, value in values.items():
        origin["profile" if key == "name" else key] = (
            origin["profile"] | {"name": value} if key == "name" else value
        )
    return origin


def test_a_name_as_files_have_them_is_taken():
    for name in ("mein Profil", "größe-2", "a.b"):
        assert LinkSpec.from_origin(changed(name=name)).profile.name == name


@pytest.mark.parametrize(
    "origin",
    [
        changed(name="x/../../../evil"),
        changed(name="\x1b[2J"),
        changed(name="n" * 300),
        changed(name=5),
        changed(topology="./mine.yml"),  # a node must not make us read a file
        changed(topology={"name": "../x", "links": []}),
        changed(topology={}),
        changed(topology=[]),
        changed(profile=[]),
        changed(profile={"name": "x"}),
        changed(seed="1"),
        changed(wire="/dev/x"),
        {},
        [],
    ],
)
def test_anything_else_is_refused_in_one_line(origin):
    with pytest.raises(ClusterError, match="what the links in force were drawn from") as raised:
        LinkSpec.from_origin(origin)
    assert raised.value.exit_code == 1
    assert "\x1b" not in raised.value.message
