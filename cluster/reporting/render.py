"""Renders specifications to pictures with vl-convert (the extra `report`), which only this module needs.

SVG is kept as small as possible: consecutive pieces of one colour are one path, coordinates have one decimal.
"""

import base64
import gzip
import importlib
import re
import zlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from cluster.base.errors import UsageError
from cluster.reporting.charts.theme import KIND_COLOURS, OTHER_COLOURS, Chart, Row, Spec

REMEDY = (
    "in a checkout .venv/bin/pip install -e '.[report]', elsewhere pip install vl-convert-python"
)
VEGA_LITE = "6.4"
PNG_SCALE = 2.0
PNG_MARK = b"\x89PNG\r\n\x1a\n"
SVG = "http://www.w3.org/2000/svg"
DRAWN = {"svg", "g", "path", "line", "text", "rect", "tspan", "defs", "clipPath"}
DROPPED = re.compile(r"(?:aria-.*|role|pointer-events|class|.*xlink.*|version)$")
NUMBER = re.compile(r"-?\d+\.\d+")
GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "viewBox")


def converter() -> ModuleType:
    """Return the module vl-convert.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("vl_convert")
    except ImportError:
        raise UsageError("charts need vl-convert-python, which is not installed", REMEDY) from None


def svg(chart: Chart, specification: Spec, convert: ModuleType) -> str:
    """Render an SVG picture for a page; its colours are the page's CSS variables."""
    text: str = convert.vegalite_to_svg(
        _with_data(specification, {**chart.data, **chart.few}), vl_version=VEGA_LITE
    )
    return small_svg(text, chart.caption)


def png(chart: Chart, convert: ModuleType) -> bytes:
    """Render a PNG picture for light paper, for uses without CSS variables."""
    specification = coloured(_with_data(chart.wide, {**chart.data, **chart.few}), dark=False)
    image: bytes = convert.vegalite_to_png(
        specification | {"background": OTHER_COLOURS["paper"][0]},
        vl_version=VEGA_LITE,
        scale=PNG_SCALE,
    )
    return small_png(image)


def small_png(image: bytes) -> bytes:
    """Recompress the same pixels as small as zlib can: a fifth of what the renderer writes."""
    packed_pixels, others, at = b"", [], len(PNG_MARK)
    while at < len(image):  # chunks: length, type, data, checksum (RFC 2083, 3.2)
        end = at + 12 + int.from_bytes(image[at : at + 4], "big")
        if image[at + 4 : at + 8] == b"IDAT":
            packed_pixels += image[at + 8 : end - 4]
        else:
            others.append(image[at:end])
        at = end
    data = b"IDAT" + zlib.compress(zlib.decompress(packed_pixels), 9)
    sums = (len(data) - 4).to_bytes(4, "big"), zlib.crc32(data).to_bytes(4, "big")
    return b"".join((PNG_MARK, *others[:-1], sums[0], data, sums[1], others[-1]))


def library(convert: ModuleType) -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    script: str = convert.javascript_bundle(vl_version=VEGA_LITE)
    return script


def packed(text: str) -> str:
    """Pack text with gzip and base64: a third of the size, and no characters that could end an HTML element."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def _with_data(specification: Spec, data: Mapping[str, Sequence[Row]]) -> Spec:
    return specification | {"datasets": dict(data)}


def coloured(value: Any, *, dark: bool) -> Any:  # noqa: ANN401 - JSON
    """Return the value with colours in place of CSS variables."""
    if isinstance(value, dict):
        return {
            key: coloured(item, dark=dark) for key, item in value.items() if key != "datasets"
        } | ({"datasets": value["datasets"]} if "datasets" in value else {})
    if isinstance(value, list):
        return [coloured(item, dark=dark) for item in value]
    if isinstance(value, str) and value.startswith("var(--"):
        return ({**OTHER_COLOURS, **KIND_COLOURS})[value[6:-1]][1 if dark else 0]
    return value


def small_svg(text: str, description: str) -> str:
    """Reduce an SVG to what is visible, with one decimal, as one image with a description."""
    root = ElementTree.fromstring(text)
    _shrink(root)
    width, height = root.get("width", "0"), root.get("height", "0")
    root.attrib.update({"role": "img", "aria-label": description, "style": f"max-width:{width}px"})
    root.attrib.setdefault("viewBox", f"0 0 {width} {height}")
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _shrink(element: ElementTree.Element) -> None:
    for name in list(element.attrib):
        if DROPPED.match(name):
            del element.attrib[name]
        elif name in GEOMETRY:
            element.attrib[name] = NUMBER.sub(_short, element.attrib[name])
    for child in list(element):
        if child.tag.rpartition("}")[2] not in DRAWN or _draws_nothing(child):
            element.remove(child)
        else:
            _shrink(child)
            if child.tag == f"{{{SVG}}}g" and not len(child) and not child.text:
                element.remove(child)
    _join_paths(element)


def _draws_nothing(element: ElementTree.Element) -> bool:
    return element.get("display") == "none" or element.get("class") == "background"


def _short(found: re.Match[str]) -> str:
    return f"{float(found[0]):.1f}".removesuffix(".0")


def _join_paths(parent: ElementTree.Element) -> None:
    """Merge closed paths with equal attributes; the picture stays the same because they do not overlap others."""
    looks: dict[tuple[tuple[str, str], ...], ElementTree.Element] = {}
    for child in list(parent):
        if (
            child.tag != f"{{{SVG}}}path"
            or child.get("transform")
            or not child.get("d", "").endswith("Z")
        ):
            looks.clear()
            continue
        look = tuple(sorted(item for item in child.attrib.items() if item[0] != "d"))
        if look in looks and "stroke" not in child.attrib:
            looks[look].set("d", looks[look].get("d", "") + child.get("d", ""))
            parent.remove(child)
        else:
            looks.setdefault(look, child)
