"""The report's page as a file: hostile text, sizes, colours, and what is written or not."""

import base64
import errno
import gzip
import hashlib
import html.parser
import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest
from run_folders import change_summary, make_run, write_json

from cluster.base.errors import ClusterError
from cluster.report import main
from cluster.reporting import after_run
from cluster.reporting.charts.theme import KIND_COLOURS, OTHER_COLOURS
from cluster.reporting.compare import comparison_page
from cluster.reporting.markdown import page_markdown
from cluster.reporting.page import Drawn, page_html
from cluster.reporting.read_run import read_run
from cluster.reporting.render import small_png, small_svg
from cluster.reporting.tables import page_csv
from cluster.reporting.write import run_page, write_page

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e{{library}}\ud800"
)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="20">{}</svg>'
SCRIPTS, IMAGES = 3, 0  # the template's own scripts: data, library, and the page's


class Elements(html.parser.HTMLParser):
    """The elements and texts that a browser would find."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.found)


def hostile_folder(tmp_path):
    """Write a run in which all text from nodes and users is hostile, and figures have all types."""
    folder = make_run(tmp_path / "run", events=[{"time": 1.7e9, "what": HOSTILE}])
    (folder / "logs" / "node2.log").write_text(HOSTILE + "\n~~~\n", errors="surrogatepass")
    text = HOSTILE.replace("\ud800", "")
    (folder / "run.yml").write_text(json.dumps({"command": text, "training": {"task": text}}))
    change_summary(
        folder,
        status="failed",
        exit_codes={"node1": 0, "node2": 1, HOSTILE: "x"},
        final_loss="NaN",
        tested={HOSTILE: 1.0, "test_accuracy": [1]},
        seconds={"node1": {HOSTILE: 3.0, "compute": "much", "total": 1e400}, "node2": 7},
        what_if=[{"what": HOSTILE, "carrier": HOSTILE, "saves_s": 1.0}, 7, {"saves_s": "x"}],
        causes=[{"words": HOSTILE, "seconds": 1.0}, 7, {"seconds": "x"}],
        attribution={"seconds": {HOSTILE: 1.0, "bytes": None}, "collectives": [{}, 3]},
        collectives=[{"kind": HOSTILE, "bytes": -1, "count": "x", "ratio": [], "seconds": {}}],
        host={"limits": [HOSTILE, 3]},
        links_lost=HOSTILE,
        bytes={"links": {HOSTILE: 1}, "loop": {"off": [HOSTILE], "ratio": "x"}},
        restarts=[],
        critical_path={
            "wall_s": 3.0,
            "ranks": {HOSTILE: {HOSTILE: 1.0, "compute": 1e400}},
            "links": {HOSTILE: {"bytes_s": 1.0, "delay_s": HOSTILE}},
            "not_known_s": [],
        },
        not_fetched={HOSTILE: 1},
    )
    contract = json.loads((folder / "contract.json").read_text())
    contract["links"][0]["link"]["src"] = HOSTILE
    contract["links"][1] = {"link": 7, "expected": [], "measured": None, "broken": HOSTILE}
    write_json(folder / "contract.json", contract)
    with (folder / "links.csv").open("a", encoding="utf-8") as file:
        file.write(f"{text},{text},{text}\n1,{text},1,1,1,1\n1e999,node1->node2,1,1,1,-1\n")
    return folder


def drawn_page(page):
    """Return the page with stand-ins for pictures, so that vl-convert is not needed."""
    charts = [chart for section in page.sections for chart in section.charts]
    return page_html(page, {chart.name: Drawn("<svg/>", "<svg/>") for chart in charts}, "x")


def test_hostile_words_are_words(tmp_path):
    text = drawn_page(run_page(read_run(hostile_folder(tmp_path))))
    text.encode()  # no surrogate is left
    page = Elements(text)
    assert (page.count("script"), page.count("img")) == (SCRIPTS, IMAGES)
    assert not [attrs for _, attrs in page.found for name in attrs if name.startswith("on")]
    assert "<script>alert(1)" not in text and "\x1b" not in text and "\u202e" not in text
    assert any("alert(1)" in words for words in page.texts)  # the text is shown
    assert text.count("{{library}}") > 0  # and is not taken for a placeholder of the template


def test_a_comparison_is_a_page_too(tmp_path):
    runs = [read_run(make_run(tmp_path / "good")), read_run(hostile_folder(tmp_path))]
    text = drawn_page(comparison_page([*runs, read_run(make_run(tmp_path / "own", program=True))]))
    assert (Elements(text).count("script"), Elements(text).count("img")) == (SCRIPTS, IMAGES)
    assert "collectives s" in text


def test_hostile_words_are_no_markdown_and_no_formula(tmp_path):
    page = run_page(read_run(hostile_folder(tmp_path)))
    text = page_markdown(page)
    outside = re.sub(r"~{24}.*?~{24}", "", text, flags=re.DOTALL)
    assert "\\<script\\>" in outside and "<script>" not in outside
    assert "\n~~~\n" not in text
    folder = make_run(tmp_path / "two")
    change_summary(folder, what_if=[{"what": "", "carrier": "=1+cmd|'x'!A0", "saves_s": 1.0}])
    assert "'=1+cmd" in page_csv(run_page(read_run(folder)))


def test_the_page_allows_its_own_script_alone_and_no_request(tmp_path):
    text = drawn_page(run_page(read_run(make_run(tmp_path / "run"))))
    metas = [attrs for tag, attrs in Elements(text).found if tag == "meta"]
    (policy,) = [m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' 'unsafe-eval'" in policy
    outside = [
        v for _, attrs in Elements(text).found for k, v in attrs.items() if k in ("src", "href")
    ]
    assert all(value.startswith(("#", "data:")) for value in outside)


def test_the_full_data_are_there_once(tmp_path):
    run = read_run(make_run(tmp_path / "run", steps=400))
    page = run_page(run)
    text = drawn_page(page)
    packed = re.search(r'id="gradwire-data">([^<]+)<', text)[1]
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert data.keys() == {chart.name for s in page.sections for chart in s.charts}
    assert len(data["learning"]["data"]["loss"]) == 400
    few = next(c for s in page.sections for c in s.charts if c.name == "learning").few
    assert len(few["loss"]) <= 240


def test_colours_can_be_told_from_the_paper_and_from_each_other():
    papers = OTHER_COLOURS["paper"]
    for name, pair in KIND_COLOURS.items():
        for mode in (0, 1):
            assert contrast(pair[mode], papers[mode]) >= 3, (name, mode)
    for name in ("ink", "muted", "good", "bad", "unknown"):
        for mode in (0, 1):
            assert contrast(OTHER_COLOURS[name][mode], papers[mode]) >= 4.5, (name, mode)
    # Colours that are adjacent in bars and lanes.
    touching = [("compute", "transfer"), ("transfer", "waiting"), ("waiting", "eval")]
    touching += [("compute", "strategy"), ("strategy", "transfer"), ("strategy", "waiting")]
    touching += [("compute", "waiting"), ("rollout", "compute"), ("rollout", "transfer")]
    touching += [("startup", "data"), ("data", "rollout"), ("data", "compute")]
    touching += [("rollout", "waiting"), ("waiting", "other")]  # of an actor
    for a, b in touching:
        for mode in (0, 1):
            for blindness in BLIND:
                seen = [simulated(KIND_COLOURS[name][mode], blindness) for name in (a, b)]
                assert distance(*seen) > 0.09, (a, b, mode, blindness)


def channels(colour):
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def contrast(one, other):
    """Return the contrast ratio by WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), channels(colour), strict=True))


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLIND = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritan": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def simulated(colour, blindness):
    rgb = channels(colour)
    return [sum(w * c for w, c in zip(row, rgb, strict=True)) for row in BLIND[blindness]]


def distance(one, other):
    """Return the distance in Oklab (Ottosson, 2020)."""
    return sum((a - b) ** 2 for a, b in zip(oklab(one), oklab(other), strict=True)) ** 0.5


def oklab(rgb):
    to_cones = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
    to_lab = ((0.2105, 0.7936, -0.0041), (1.978, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
    cones = [
        max(0.0, sum(w * c for w, c in zip(row, rgb, strict=True))) ** (1 / 3) for row in to_cones
    ]
    return [sum(w * c for w, c in zip(row, cones, strict=True)) for row in to_lab]


def test_pieces_of_one_colour_are_one_path_and_nothing_else_is_let_in():
    bars = "".join(f'<path d="M{n}.123456,0h1v1h-1Z" fill="var(--a)" role="x"/>' for n in range(9))
    other = '<path d="M9,0h1v1h-1Z" fill="var(--b)"/>'
    bad = '<script>alert(1)</script><foreignObject/><image href="http://x"/><a href="x"/>'
    root = ET.fromstring(small_svg(SVG.format(bars + other + bad), "what it shows"))
    assert [child.tag.rpartition("}")[2] for child in root] == ["path", "path"]
    assert root[0].get("d").count("Z") == 9 and root[0].get("d").startswith("M0.1,0h1")
    assert (root.get("role"), root.get("aria-label")) == ("img", "what it shows")


@pytest.mark.parametrize(("nodes", "most_bytes"), [(4, 1_000_000), (64, 3_000_000)])
def test_the_file_stays_small(tmp_path, nodes, most_bytes):
    pytest.importorskip("vl_convert", reason="vl-convert-python is in .venv alone (make venv)")
    folder = make_run(tmp_path / "run", nodes=nodes, steps=200, every=1)
    written = write_page(run_page(read_run(folder)), folder)
    size = written.files[0].stat().st_size
    assert most_bytes / 10 < size < most_bytes
    text = written.files[0].read_text()
    marks = [svg.count("<path") + svg.count("<line") for svg in re.findall(r"<svg.*?</svg>", text)]
    assert len(marks) >= 10 and max(marks) <= 1000


def test_pictures_are_drawn_on_request(tmp_path, capsys):
    pytest.importorskip("vl_convert", reason="vl-convert-python is in .venv alone (make venv)")
    folder = make_run(tmp_path / "run")
    assert main([str(folder), "--png", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    pictures = [path for path in written if path.endswith(".png")]
    assert len(pictures) == 9
    image = (folder / "report-timeline.png").read_bytes()
    assert image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB\x60\x82")
    assert small_png(image) == image and len(image) < 200_000
    assert "](report-seconds.png)" in (folder / "report.md").read_text()


def test_without_the_extra_words_and_tables_are_written_all_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # as if it were not installed
    folder = make_run(tmp_path / "run")
    assert main([str(folder)]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "elsewhere pip install vl-convert-python" in said.err
    assert said.out == f"{folder / 'report.md'}\n{folder / 'report.csv'}\n"
    assert not (folder / "report.html").exists()
    assert main([str(folder), "--png"]) == 2
    assert "which is not installed" in capsys.readouterr().err


def test_a_full_disk_is_one_line_and_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    folder = make_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def full(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cluster.base.files.Path.replace", full)
    with pytest.raises(ClusterError, match=r"report.*cannot be written: No space left") as error:
        write_page(run_page(read_run(folder)), folder)
    assert error.value.hint == "free disk space"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_report_changes_nothing_of_the_run_s_own(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    folder = make_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    elsewhere = tmp_path / "not there" / "yet"
    assert main([str(folder), "--output", str(elsewhere)]) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert {path.name for path in elsewhere.iterdir()} == {"report.md", "report.csv"}


def test_what_is_no_run_ends_with_usage(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} is no folder of a run\n")


def test_a_launch_names_its_report_and_survives_one_that_fails(tmp_path, monkeypatch):
    folder, said = make_run(tmp_path / "run"), []
    after_run.report_run(folder, said.append, is_named=True)
    assert said[-1] in (f"report {folder / 'report.html'}", f"report {folder / 'report.md'}")
    said.clear()
    after_run.report_run(tmp_path, said.append)
    assert said == [f"no report: {tmp_path} is no folder of a run"]
    said.clear()

    def hangs(*_, **__):
        raise ClusterError("it has not answered\nfor long")

    monkeypatch.setattr(after_run, "run_bounded", hangs)
    after_run.report_run(folder, said.append)
    assert said == ["no report: it has not answered"]


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path, monkeypatch):
    from cluster.reporting import library

    class Convert:
        __version__ = "1"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "library", lambda convert: "ours")
    path = library.cache_path("1")
    good = library.packed_library(Convert)
    assert path.read_text() == good
    path.write_text("theirs")
    path.chmod(0o666)
    assert library.packed_library(Convert) == good
