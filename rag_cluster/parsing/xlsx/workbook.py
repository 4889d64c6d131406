"""What a workbook's sheets share: their names and order, strings, number formats, bold styles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lxml import etree

from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.number_format import BUILTIN, NumberFormat, number_format
from rag_cluster.parsing.ooxml import NAMESPACES, Package, find, local_name, on_off, qn
from rag_cluster.parsing.superscripts import superscript

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A visible sheet; kind is "worksheet" or "chartsheet"."""

    name: str
    part: str
    kind: str


@dataclass(frozen=True, slots=True)
class Style:
    """What a cell's style index says."""

    format: NumberFormat
    bold: bool


class Workbook:
    """Read once per file. Shared strings are kept as one list, as every cell may point at any of them."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.part = package.main_part("xl/workbook.xml")
        root = package.xml(self.part)
        self.date1904 = _date1904(root)
        self.sheets = list(self._visible_sheets(root))
        self.strings = list(self._shared_strings())
        self.styles = self._read_styles() or [Style(number_format("General"), False)]

    def style(self, index: str | None) -> Style:
        """Style of a cell's s attribute; unknown indexes look like the first one."""
        number = int(index) if index and index.isdecimal() else 0
        return self.styles[number] if number < len(self.styles) else self.styles[0]

    def _visible_sheets(self, root: Any) -> Iterator[Sheet]:
        links = self.package.relationships(self.part)
        for sheet in root.iter(qn("s:sheet")):
            if sheet.get("state", "visible") != "visible":
                continue
            link = links.get(sheet.get(qn("r:id"), ""))
            if link is None or not self.package.has(link.target):
                self.package.damaged(f"The sheet {sheet.get('name', '')!r} is missing in the file")
            elif link.type in ("worksheet", "chartsheet"):
                yield Sheet(sheet.get("name", ""), link.target, link.type)

    def _shared_strings(self) -> Iterator[str]:
        part = self.package.related(self.part, "sharedStrings")
        if part is None:
            return
        with self.package.open(part) as stream:
            for element in stream_elements(stream, "si"):
                yield string_item(element)
                element.clear()

    def _read_styles(self) -> list[Style]:
        root = self.package.optional_xml(self.package.related(self.part, "styles"))
        codes = {_number(f.get("numFmtId")): f.get("formatCode", "") for f in _all(root, "s:numFmts/s:numFmt")}
        bold = [bool(on_off(find(font, "s:b"))) for font in _all(root, "s:fonts/s:font")]
        styles = []
        for xf in _all(root, "s:cellXfs/s:xf"):
            number = _number(xf.get("numFmtId"))
            font = _number(xf.get("fontId"))
            code = codes.get(number) or BUILTIN.get(number, "General")
            styles.append(Style(number_format(code, self.date1904), font < len(bold) and bold[font]))
        return styles


def stream_elements(stream: Any, *names: str) -> Iterator[Any]:
    """Elements of the given local names as they end, in any namespace; what was read before is dropped."""
    try:
        events = etree.iterparse(
            stream,
            events=("end",),
            tag=[f"{{*}}{name}" for name in names],
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        for _, element in events:
            yield element
            parent = element.getparent()
            while parent is not None and element.getprevious() is not None:
                del parent[0]
    except etree.XMLSyntaxError as error:
        raise CorruptDocumentError(f"The XML is not well formed: {error}") from error


def string_item(element: Any) -> str:
    """Text of an si or is: plain or rich runs, without phonetic guides."""
    parts: list[str] = []
    for child in element:
        name = local_name(child)
        if name == "t":
            parts.append(child.text or "")
        elif name == "r":
            text = "".join(t.text or "" for t in child if local_name(t) == "t")
            parts.append(superscript(text) if _is_raised(child) else text)
    return unescaped("".join(parts))


def _is_raised(run: Any) -> bool:
    mark = next(run.iter("{*}vertAlign"), None)
    return mark is not None and mark.get("val") == "superscript"


def unescaped(text: str) -> str:
    """_x000D_ and the like are characters that XML could not hold."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def _date1904(root: Any) -> bool:
    properties = find(root, "s:workbookPr")
    return properties is not None and properties.get("date1904") in ("1", "true", "on")


def _all(root: Any, path: str) -> list[Any]:
    return [] if root is None else root.findall(path, NAMESPACES)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
