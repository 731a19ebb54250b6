"""JSON Schemas accept all YAML that is shipped or documented, and refuse what parsers refuse, as far as they can."""

import re
from pathlib import Path

import jsonschema
import pytest
import test_profiles
import test_schedule
import test_sweep_file
import test_topology

from cluster.base.errors import UsageError
from cluster.base.paths import PROFILES_DIR, PROJECT_DIR
from cluster.base.yaml_file import read_yaml
from cluster.schema import SCHEMAS

CHECKS = {kind: jsonschema.Draft202012Validator(of()) for kind, of in SCHEMAS.items()}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_one(kind):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind]())


@pytest.mark.parametrize("path", sorted(PROFILES_DIR.glob("*.yml")), ids=lambda path: path.stem)
def test_every_shipped_profile_is_accepted(path):
    CHECKS["profile"].validate(read_yaml(path))


@pytest.mark.parametrize("name", ["storm.yml", "ride.yml"])
def test_every_shipped_schedule_is_accepted(name):
    CHECKS["schedule"].validate(read_yaml(PROJECT_DIR / "examples" / name))


def test_the_shipped_topology_is_accepted():
    CHECKS["topology"].validate(read_yaml(PROJECT_DIR / "examples" / "one_poor_actor.yml"))


def test_what_the_documentation_shows_is_accepted(tmp_path):
    topologies = [text for text in yaml_blocks("links.md") if text.startswith("base:")]
    assert topologies
    for text in topologies:
        CHECKS["topology"].validate(written(tmp_path, text))
    (sweep,) = yaml_blocks("verbs/sweep.md")
    CHECKS["sweep"].validate(written(tmp_path, sweep))


def yaml_blocks(page):
    text = (PROJECT_DIR / "docs" / page).read_text()
    return re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize(("document", "words"), test_profiles.BAD, ids=str)
def test_a_profile_that_is_refused_is_refused_by_the_schema(document, words):
    if document.get("rate_mbyte_s") == [2, 1]:
        pytest.skip("a schema cannot say that a range begins low")
    assert not CHECKS["profile"].is_valid(document)


@pytest.mark.parametrize(("document", "words"), test_topology.BAD, ids=str)
def test_a_topology_that_is_refused_is_refused_by_the_schema(document, words):
    if words.startswith("no path"):
        pytest.skip("a schema cannot say that a graph joins all nodes")
    assert not CHECKS["topology"].is_valid(document)


@pytest.mark.parametrize(("text", "words"), test_schedule.BAD, ids=str)
def test_a_schedule_that_is_refused_is_refused_by_the_schema(tmp_path, text, words):
    if words in ("a node twice", "no trace"):
        pytest.skip("a schema cannot compare sets, nor look for a file")
    try:
        document = written(tmp_path, text)
    except UsageError:
        return  # not YAML
    assert not CHECKS["schedule"].is_valid(document)


@pytest.mark.parametrize("path", test_sweep_file.SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_sweep_is_accepted(path):
    CHECKS["sweep"].validate(read_yaml(path))


@pytest.mark.parametrize(("document", "words"), test_sweep_file.BAD, ids=str)
def test_a_sweep_that_is_refused_is_refused_by_the_schema(document, words):
    assert not CHECKS["sweep"].is_valid(document)


def written(folder: Path, text: str) -> object:
    path = folder / "some.yml"
    path.write_text(text)
    return read_yaml(path)
