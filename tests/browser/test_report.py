"""Reports in Debian's headless Chromium without a network: scripting on and off, narrow and wide, light and dark.

python tests/browser/make_reports.py reports
GRADWIRE_REPORTS=reports python3 -m pytest tests/browser        # GRADWIRE_SHOTS=shots keeps screenshots
"""

import os
import re
import shutil
from pathlib import Path

import pytest
from chromium import Chromium

REPORTS = Path(os.environ.get("GRADWIRE_REPORTS", "reports")).resolve()
SHOTS = os.environ.get("GRADWIRE_SHOTS")
CHARTS = {
    "training/report.html": ["seconds", "critical_path", "helped", "attribution", "timeline"]
    + ["critical_link", "links", "topology", "learning"],
    "failed/report.html": ["links", "topology"],
    "large/report.html": ["seconds", "critical_path", "helped", "attribution", "timeline"]
    + ["critical_link", "links", "learning"],
    "comparison.html": ["tests", "losses", "attributions"],
}
DRAWN = """[...document.querySelectorAll('figure')].map(figure => {
  const seen = [...figure.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
  const marks = seen.map(svg => svg.querySelectorAll('path, line, text').length);
  return [figure.dataset.chart, seen.length, marks[0] ?? 0];
})"""
EXPLORE = """(async () => {
  for (const button of document.querySelectorAll('.explore')) button.click();
  for (let i = 0; i < 600 && document.querySelectorAll('.explore').length; i++)
    await new Promise(done => setTimeout(done, 100));
  return [...document.querySelectorAll('figure.is-live')].map(figure => [
    figure.dataset.chart, figure.querySelectorAll('.live svg, .live canvas').length]);
})()"""
COLOURS = """(() => {
  const style = getComputedStyle(document.documentElement);
  const bar = document.querySelector('figure svg path[fill^="var"]');
  return [style.backgroundColor, bar && getComputedStyle(bar).fill];
})()"""
SPILT = """[...document.querySelectorAll('body *')].filter(one =>
  one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll, svg, details')).length"""


@pytest.fixture(scope="module")
def browser():
    if not shutil.which("chromium"):
        pytest.fail("no chromium: make test-browser runs these in an image that has one")
    with Chromium() as one:
        yield one


def shot(tab, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        Path(SHOTS, f"{name}.png").write_bytes(tab.screenshot())


@pytest.mark.parametrize("scripting", [True, False], ids=["scripted", "unscripted"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [400, 1280])
@pytest.mark.parametrize("report", CHARTS)
def test_all_is_drawn_and_nothing_is_asked_or_complained_of(
    browser, report, width_px, dark, scripting
):
    tab = browser.open(
        (REPORTS / report).as_uri(), width_px=width_px, dark=dark, scripting=scripting
    )
    try:
        found = tab.evaluate(DRAWN)
        assert [name for name, *_ in found] == CHARTS[report]
        assert all(seen == 1 for _, seen, _ in found), found  # one of the two widths
        assert all(5 < marks <= 1000 for *_, marks in found), found
        assert tab.evaluate("document.documentElement.scrollWidth") <= width_px
        assert tab.evaluate(SPILT) == 0
        paper, bar = tab.evaluate(COLOURS)
        assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == dark
        assert bar is None or re.fullmatch(r"rgb\(\d+, \d+, \d+\)", bar)
        mode = f"{width_px}-{'dark' if dark else 'light'}-{'on' if scripting else 'off'}"
        shot(tab, f"{report.replace('/', '-').removesuffix('.html')}-{mode}")
        assert tab.evaluate("document.title").endswith("gradwire")  # no text became a script
        assert (tab.requests(), tab.said()) == ([], [])
    finally:
        tab.close()


@pytest.mark.parametrize(("width_px", "dark"), [(400, False), (1280, True)])
@pytest.mark.parametrize("report", CHARTS)
def test_every_chart_can_be_explored(browser, report, width_px, dark):
    tab = browser.open((REPORTS / report).as_uri(), width_px=width_px, dark=dark)
    try:
        assert tab.evaluate(EXPLORE) == [[name, 1] for name in CHARTS[report]]
        shot(tab, f"explored-{report.replace('/', '-').removesuffix('.html')}-{width_px}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width_px
        assert (tab.requests(), tab.said()) == ([], [])
    finally:
        tab.close()


def test_colours_change_with_the_mode_while_it_is_open(browser):
    tab = browser.open((REPORTS / "training/report.html").as_uri(), width_px=1280)
    try:
        before = tab.evaluate(COLOURS)
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        tab.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        after = tab.evaluate(COLOURS)
        assert before[0] != after[0] and before[1] != after[1]
    finally:
        tab.close()


def test_it_prints_on_light_paper_with_what_is_drawn(browser):
    tab = browser.open((REPORTS / "training/report.html").as_uri(), width_px=1280, dark=True)
    try:
        tab.media("print")
        assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        pages = tab.call("Page.printToPDF", {"printBackground": True})["data"]
        assert len(pages) > 20_000
        assert tab.evaluate("[...document.querySelectorAll('.explore')].every(b => !b.offsetWidth)")
    finally:
        tab.close()


def test_the_browser_would_tell_of_a_request_and_of_an_error(browser, tmp_path):
    """Shows that the tests above can fail."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<link rel=icon href=data:,><img src='https://example.com/x.png'><script>boom()</script>"
    )
    tab = browser.open(page.as_uri(), width_px=400)
    try:
        assert tab.requests() == ["https://example.com/x.png"]
        assert any("ReferenceError" in words or "Uncaught" in words for words in tab.said())
    finally:
        tab.close()
