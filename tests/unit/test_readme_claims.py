"""What the README says of files, folders and profiles is so; its commands are run by tests/links/test_readme.py."""

import re

import yaml

from cluster.base.paths import PROJECT_DIR
from cluster.links.profiles import load_profile, parse_profile, profile_names

README = (PROJECT_DIR / "README.md").read_text()
LINKS = (PROJECT_DIR / "docs" / "links.md").read_text()


def test_the_profile_table_is_that_of_the_files():
    for name in profile_names():
        profile = load_profile(name)
        rate, delay = (
            f"{low:g}" if low == high else f"{low:g}–{high:g}"
            for low, high in (profile.rate_mbyte_s, profile.delay_ms)
        )
        assert f"| {name} | {rate} | {delay} |" in LINKS


def test_every_file_that_the_readme_names_is_there():
    names = re.findall(r"[\w/-]+\.(?:py|md|yml)", README)
    assert len(names) > 15
    for name in names:
        places = [PROJECT_DIR / folder / name for folder in ("", "cluster", "node", "node/wire")]
        assert any(place.exists() for place in places), name


def test_the_regions_of_the_page_on_links_can_be_written_so():
    """As two keys of a profile; its pair is one of aws-regions."""
    keys = re.search(r"`(regions: \[[^`]*)`[^`]*`(between: [^`]*)`", LINKS)
    document = yaml.safe_load("\n".join(("rate_mbyte_s: 250", "delay_ms: 2.5", *keys.groups())))
    found = parse_profile("mine", document, "docs/links.md")
    assert set(found.between) < set(load_profile("aws-regions").between)
    assert set(found.regions) == {end for pair in found.between for end in pair.ends}


def test_nobody_is_told_to_install_this_project_from_a_registry():
    """It is in none: whoever registers its name would be installed."""
    told = re.compile(r"pip install (-\S+ )*'?gradwire(?![-\w])")  # not the name of a wheel
    pages = [p for p in (PROJECT_DIR / "docs").rglob("*.md") if p.name != "LOG.md"]
    code = [path for folder in ("cluster", "node") for path in (PROJECT_DIR / folder).rglob("*.py")]
    assert told.search("pip install 'gradwire[report]'")
    assert [path for path in (*pages, *code) if told.search(path.read_text())] == []


def test_its_map_shows_every_folder():
    shown, package = [], ""
    for line in folder_map():
        folder = re.match(r" *[\w]+/(?= )", line)[0]
        package = package if folder.startswith(" ") else folder
        shown.append(package + folder.strip() if folder.startswith(" ") else folder)
    there = {
        f"{path.parent.relative_to(PROJECT_DIR)}/"
        for package in ("cluster", "node")
        for path in (PROJECT_DIR / package).glob("*/__init__.py")
    }
    assert there <= set(shown)
    assert all((PROJECT_DIR / folder).is_dir() for folder in shown)


def folder_map():
    """Return the lines of the README's map of folders."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return next(text for text in blocks if text.startswith("protocol/ ")).splitlines()
